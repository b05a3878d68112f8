-- name: next_delayed
-- When the next message for later is due, and whether any of them has a transaction id.
SELECT (SELECT min(due_at) FROM hw_delayed), EXISTS (SELECT 1 FROM hw_delayed_ids);

-- name: next_delayed_after
-- The same for messages that are due after a time.
SELECT (SELECT min(due_at) FROM hw_delayed WHERE due_at > $1), EXISTS (SELECT 1 FROM hw_delayed_ids);

-- name: add_delayed
-- Messages of one partition for later.
INSERT INTO hw_delayed (partition_id, due_at, pushed_at, ttl_seconds, count, codec, checksum, records)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id;

-- name: add_delayed_id
-- The transaction id of a message for later.
INSERT INTO hw_delayed_ids (partition_id, transaction_id, delayed_id) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: find_delayed_id
-- When a message with this transaction id is due that is still to come.
SELECT d.due_at FROM hw_delayed_ids i JOIN hw_delayed d ON d.id = i.delayed_id
WHERE i.partition_id = $1 AND i.transaction_id = $2;

-- name: due_delayed
-- What is due since a time, in the order of its times.
SELECT due_at, id, partition_id, ttl_seconds, count, codec, checksum, records FROM hw_delayed
WHERE due_at > $1 AND due_at <= $2 ORDER BY due_at, id LIMIT $3;

-- name: put_off_delayed
-- Try again later.
UPDATE hw_delayed SET due_at = $1 WHERE id = $2;

-- name: drop_delayed
-- It is in the log now.
DELETE FROM hw_delayed WHERE id = $1;

-- name: drop_delayed_ids
-- Its transaction ids are found in the log now.
DELETE FROM hw_delayed_ids WHERE delayed_id = $1;

-- name: count_delayed
-- How many messages are still to come for a partition.
SELECT coalesce(sum(count), 0)::int8 FROM hw_delayed WHERE partition_id = $1;

-- name: clear_delayed
-- Drop what is still to come for a partition.
DELETE FROM hw_delayed WHERE partition_id = $1;

-- name: clear_delayed_ids
-- And its transaction ids.
DELETE FROM hw_delayed_ids WHERE partition_id = $1;

-- name: drop_queue_delayed
-- Remove what is still to come for a queue.
DELETE FROM hw_delayed WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = $1);

-- name: drop_queue_delayed_ids
-- And its transaction ids.
DELETE FROM hw_delayed_ids WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = $1);

-- name: take_delayed_back
-- The clock was set back to $1 by $2: what was pushed after that time comes as much earlier.
UPDATE hw_delayed SET due_at = greatest($1, due_at - $2), pushed_at = $1 WHERE pushed_at > $1;

-- name: queue_delayed
-- How many messages are still to come for a queue.
SELECT coalesce(sum(d.count), 0)::int8 FROM hw_partitions p JOIN hw_delayed d ON d.partition_id = p.id WHERE p.queue_id = $1;
