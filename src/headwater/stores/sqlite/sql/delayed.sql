-- name: next_delayed
-- When the next message for later is due, and whether any of them has a transaction id.
SELECT (SELECT min(due_at) FROM hw_delayed), EXISTS (SELECT 1 FROM hw_delayed_ids);

-- name: next_delayed_after
-- The same for messages that are due after a time.
SELECT (SELECT min(due_at) FROM hw_delayed WHERE due_at > ?), EXISTS (SELECT 1 FROM hw_delayed_ids);

-- name: add_delayed
-- Messages of one partition for later.
INSERT INTO hw_delayed (partition_id, due_at, pushed_at, ttl_seconds, count, codec, checksum, records)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id;

-- name: add_delayed_id
-- The transaction id of a message for later.
INSERT OR IGNORE INTO hw_delayed_ids (partition_id, transaction_id, delayed_id) VALUES (?, ?, ?);

-- name: find_delayed_id
-- When a message with this transaction id is due that is still to come.
SELECT d.due_at FROM hw_delayed_ids i JOIN hw_delayed d ON d.id = i.delayed_id
WHERE i.partition_id = ? AND i.transaction_id = ?;

-- name: due_delayed
-- What is due since a time, in the order of its times.
SELECT due_at, id, partition_id, ttl_seconds, count, codec, checksum, records FROM hw_delayed
WHERE due_at > ? AND due_at <= ? ORDER BY due_at, id LIMIT ?;

-- name: put_off_delayed
-- Try again later.
UPDATE hw_delayed SET due_at = ? WHERE id = ?;

-- name: drop_delayed
-- It is in the log now.
DELETE FROM hw_delayed WHERE id = ?;

-- name: drop_delayed_ids
-- Its transaction ids are found in the log now.
DELETE FROM hw_delayed_ids WHERE delayed_id = ?;

-- name: count_delayed
-- How many messages are still to come for a partition.
SELECT coalesce(sum(count), 0) FROM hw_delayed WHERE partition_id = ?;

-- name: clear_delayed
-- Drop what is still to come for a partition.
DELETE FROM hw_delayed WHERE partition_id = ?;

-- name: clear_delayed_ids
-- And its transaction ids.
DELETE FROM hw_delayed_ids WHERE partition_id = ?;

-- name: drop_queue_delayed
-- Remove what is still to come for a queue.
DELETE FROM hw_delayed WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: drop_queue_delayed_ids
-- And its transaction ids.
DELETE FROM hw_delayed_ids WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: take_delayed_back
-- The clock was set back to ?1 by ?2: what was pushed after that time comes as much earlier.
UPDATE hw_delayed SET due_at = max(?1, due_at - ?2), pushed_at = ?1 WHERE pushed_at > ?1;

-- name: queue_delayed
-- How many messages are still to come for a queue.
SELECT coalesce(sum(d.count), 0) FROM hw_partitions p JOIN hw_delayed d ON d.partition_id = p.id WHERE p.queue_id = ?;
