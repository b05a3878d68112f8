-- name: get_meta
-- One fact about the store.
SELECT value FROM hw_meta WHERE key = ?;

-- name: set_meta
-- Remember one fact about the store.
INSERT INTO hw_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: drop_meta
-- Forget one fact about the store.
DELETE FROM hw_meta WHERE key = ?;

-- name: raise_meta
-- Raise a number that never falls.
INSERT INTO hw_meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value);

-- name: list_tables
-- The tables of the file, whoever made them.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%';

-- name: look
-- What others may have changed, in one row: names and options, the end of the log, the newest partition, the newest
-- jump of the clock, the latest time that was seen since then, access tokens, which store it is.
SELECT coalesce((SELECT value FROM hw_meta WHERE key = 'catalog_version'), 0),
       max(coalesce((SELECT max(lsn) FROM hw_segments), 0),
           coalesce((SELECT value FROM hw_meta WHERE key = 'last_lsn'), 0)),
       coalesce((SELECT max(id) FROM hw_partitions), 0),
       coalesce((SELECT max(id) FROM hw_clock_jumps), 0),
       max(coalesce((SELECT written_at FROM hw_segments
                     WHERE lsn > coalesce((SELECT max(lsn) FROM hw_clock_jumps), 0) ORDER BY lsn DESC LIMIT 1), 0),
           coalesce((SELECT value FROM hw_meta
                     WHERE key = 'clock_at/' || coalesce((SELECT max(id) FROM hw_clock_jumps), 0)), 0)),
       coalesce((SELECT value FROM hw_meta WHERE key = 'access_version'), 0),
       coalesce((SELECT value FROM hw_meta WHERE key = 'identity'), '');

-- name: add_clock_jump
-- The clock was set back after this LSN.
INSERT INTO hw_clock_jumps (lsn, was, became) VALUES (?, ?, ?);

-- name: clock_jumps
-- The LSNs after which the clock was set back.
SELECT DISTINCT lsn FROM hw_clock_jumps ORDER BY lsn;

-- name: clock_became
-- To what the clock was set back first after this LSN.
SELECT became FROM hw_clock_jumps WHERE lsn >= ? ORDER BY id LIMIT 1;

-- name: take_times_back
-- The clock was set back to ?1 by ?2: what was ready stays ready, what was to come comes as much earlier.
UPDATE hw_cursors SET ready_at = max(?1, ready_at - ?2), lease_until = lease_until - ?2 WHERE ready_at > ?1;

-- name: find_view
-- A view, whoever made it.
SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?;

-- name: drop_jobs_view
-- Make room for a newer one.
DROP VIEW jobs;

-- name: drop_message_queue_view
-- Make room for a newer one.
DROP VIEW message_queue;

-- name: drop_canvas_watermarks_view
-- Make room for a newer one.
DROP VIEW canvas_watermarks;
