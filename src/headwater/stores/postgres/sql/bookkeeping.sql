-- name: find_applied
-- The answer that an idempotency key got before.
SELECT operation, result, fingerprint FROM hw_applied WHERE database = $1 AND key = $2;

-- name: add_applied
-- Remember the answer for an idempotency key; a pop whose leases are over may get another one.
INSERT INTO hw_applied (database, key, operation, result, fingerprint, applied_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (database, key) DO UPDATE SET result = excluded.result, applied_at = excluded.applied_at;

-- name: change_applied
-- Remember something else of what an idempotency key got.
UPDATE hw_applied SET result = $1 WHERE database = $2 AND key = $3;

-- name: forget_applied
-- Drop old idempotency keys.
DELETE FROM hw_applied WHERE (database, key) IN
    (SELECT database, key FROM hw_applied WHERE applied_at < $1 ORDER BY applied_at LIMIT $2)
RETURNING 1;

-- name: add_trace
-- Note an event in the life of a record.
INSERT INTO hw_traces (database, partition_id, transaction_id, group_name, name, event, data, noted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: traces
-- The noted events of one record.
SELECT partition_id, transaction_id, group_name, name, event, noted_at, data FROM hw_traces
WHERE database = $1 AND partition_id = $2 AND transaction_id IN ($3, $4) ORDER BY id;

-- name: has_hidden_traces
-- Whether some events of a partition are encrypted.
SELECT 1 FROM hw_traces WHERE database = $1 AND partition_id = $2 AND data LIKE 'encrypted:%' LIMIT 1;

-- name: forget_traces
-- Drop old events.
DELETE FROM hw_traces WHERE id IN (SELECT id FROM hw_traces WHERE noted_at < $1 ORDER BY noted_at LIMIT $2)
RETURNING 1;

-- name: traces_named
-- The events that were noted under a name, newest first, in queues whose names fit a pattern.
SELECT t.partition_id, t.transaction_id, t.group_name, t.name, t.event, t.noted_at, t.data
FROM hw_traces t JOIN hw_partitions p ON p.id = t.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE t.database = $1 AND t.name = $2
    AND hw_fits(q.name, $3::text::json ->> starts_with(q.name, 'headwater/')::int)
ORDER BY t.id DESC LIMIT $4 OFFSET $5;

-- name: trace_names
-- The names that events were noted under in queues that fit a pattern: how many there are and when the last was.
SELECT t.name, count(*), max(t.noted_at)
FROM hw_traces t JOIN hw_partitions p ON p.id = t.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE t.database = $1 AND t.name <> ''
    AND hw_fits(q.name, $2::text::json ->> starts_with(q.name, 'headwater/')::int)
GROUP BY t.name ORDER BY max(t.noted_at) DESC, t.name LIMIT $3;

-- name: turn_on
-- Something is on for a database.
INSERT INTO hw_switches (database, name, turned_on_at) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: turn_off
-- Something is off again.
DELETE FROM hw_switches WHERE database = $1 AND name = $2;

-- name: switches
-- What is on, for which database.
SELECT database, name FROM hw_switches;
