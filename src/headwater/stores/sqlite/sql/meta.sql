-- name: get_meta
-- One fact about the store.
SELECT value FROM hw_meta WHERE key = ?;

-- name: set_meta
-- Remember one fact about the store.
INSERT INTO hw_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: raise_meta
-- Raise a number that never falls.
INSERT INTO hw_meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value);

-- name: list_tables
-- The tables of the file, whoever made them.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%';

-- name: look
-- What others may have changed, in one row: names and options, the end of the log, the newest partition.
SELECT coalesce((SELECT value FROM hw_meta WHERE key = 'catalog_version'), 0),
       max(coalesce((SELECT max(lsn) FROM hw_segments), 0),
           coalesce((SELECT value FROM hw_meta WHERE key = 'last_lsn'), 0)),
       coalesce((SELECT max(id) FROM hw_partitions), 0);
