-- name: find_applied
-- The answer that an idempotency key got before.
SELECT operation, result, fingerprint FROM hw_applied WHERE database = ? AND key = ?;

-- name: add_applied
-- Remember the answer for an idempotency key; a pop whose leases are over may get another one.
INSERT INTO hw_applied (database, key, operation, result, fingerprint, applied_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (database, key) DO UPDATE SET result = excluded.result, applied_at = excluded.applied_at;

-- name: change_applied
-- Remember something else of what an idempotency key got.
UPDATE hw_applied SET result = ? WHERE database = ? AND key = ?;

-- name: forget_applied
-- Drop old idempotency keys.
DELETE FROM hw_applied WHERE (database, key) IN
    (SELECT database, key FROM hw_applied WHERE applied_at < ? ORDER BY applied_at LIMIT ?)
RETURNING 1;

-- name: add_trace
-- Note an event in the life of a record.
INSERT INTO hw_traces (database, partition_id, transaction_id, group_name, name, event, data, noted_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: traces
-- The noted events of one record.
SELECT partition_id, transaction_id, group_name, name, event, noted_at, data FROM hw_traces
WHERE database = ? AND partition_id = ? AND transaction_id IN (?, ?) ORDER BY id;

-- name: has_hidden_traces
-- Whether some events of a partition are encrypted.
SELECT 1 FROM hw_traces WHERE database = ? AND partition_id = ? AND data LIKE 'encrypted:%' LIMIT 1;

-- name: forget_traces
-- Drop old events.
DELETE FROM hw_traces WHERE id IN (SELECT id FROM hw_traces WHERE noted_at < ? ORDER BY noted_at LIMIT ?)
RETURNING 1;

-- name: traces_named
-- The events that were noted under a name, newest first, in queues whose names fit a pattern.
SELECT t.partition_id, t.transaction_id, t.group_name, t.name, t.event, t.noted_at, t.data
FROM hw_traces t JOIN hw_partitions p ON p.id = t.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE t.database = ?1 AND t.name = ?2
    AND EXISTS (SELECT 1 FROM json_each(?3, iif(q.name GLOB 'headwater/*', '$[1]', '$[0]')) pattern
                WHERE q.name GLOB pattern.value)
ORDER BY t.id DESC LIMIT ?4 OFFSET ?5;

-- name: trace_names
-- The names that events were noted under in queues that fit a pattern: how many there are and when the last was.
SELECT t.name, count(*), max(t.noted_at)
FROM hw_traces t JOIN hw_partitions p ON p.id = t.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE t.database = ?1 AND t.name <> ''
    AND EXISTS (SELECT 1 FROM json_each(?2, iif(q.name GLOB 'headwater/*', '$[1]', '$[0]')) pattern
                WHERE q.name GLOB pattern.value)
GROUP BY t.name ORDER BY max(t.noted_at) DESC, t.name LIMIT ?3;

-- name: turn_on
-- Something is on for a database.
INSERT OR IGNORE INTO hw_switches (database, name, turned_on_at) VALUES (?, ?, ?);

-- name: turn_off
-- Something is off again.
DELETE FROM hw_switches WHERE database = ? AND name = ?;

-- name: switches
-- What is on, for which database.
SELECT database, name FROM hw_switches;
