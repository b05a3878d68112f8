-- name: find_queue
-- A queue by its name.
SELECT id, database, name, namespace, task, options FROM hw_queues WHERE database = ? AND name = ?;

-- name: find_queue_by_id
-- A queue by its number.
SELECT id, database, name, namespace, task, options FROM hw_queues WHERE id = ?;

-- name: add_queue
-- A new queue.
INSERT INTO hw_queues (database, name, namespace, task, priority, options, created_at) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: change_queue
-- New options for a queue.
UPDATE hw_queues SET namespace = ?, task = ?, priority = ?, options = ? WHERE id = ?;

-- name: find_queues_together
-- The queues of a namespace and task ('' means any), the most urgent first; never those that Headwater keeps for itself.
SELECT id, database, name, namespace, task, options FROM hw_queues
WHERE database = ?1 AND (?2 = '' OR namespace = ?2) AND (?3 = '' OR task = ?3) AND name NOT GLOB 'headwater/*'
ORDER BY priority DESC, id;

-- name: drop_queue
-- Remove a queue's row.
DELETE FROM hw_queues WHERE id = ?;

-- name: drop_queue_segments
-- Remove a queue's records.
DELETE FROM hw_segments WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: drop_queue_cursors
-- Remove the positions of a queue's groups.
DELETE FROM hw_cursors WHERE group_id IN (SELECT id FROM hw_groups WHERE queue_id = ?);

-- name: drop_queue_groups
-- Remove a queue's groups.
DELETE FROM hw_groups WHERE queue_id = ?;

-- name: drop_queue_dead_letters
-- Remove a queue's dead letters.
DELETE FROM hw_dead_letters WHERE queue_id = ?;

-- name: drop_queue_traces
-- Remove the events noted for a queue's records.
DELETE FROM hw_traces WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: drop_queue_partitions
-- Remove a queue's partitions.
DELETE FROM hw_partitions WHERE queue_id = ?;

-- name: find_partition
-- A partition by its name.
SELECT id, start_offset FROM hw_partitions WHERE queue_id = ? AND name = ?;

-- name: find_partition_by_id
-- A partition by its number.
SELECT queue_id, name, start_offset FROM hw_partitions WHERE id = ?;

-- name: count_partitions
-- How many partitions a queue has, without the lanes of its priorities and those that are for one group.
SELECT count(*) FROM hw_partitions WHERE queue_id = ? AND priority = 0 AND reader = '';

-- name: has_priorities
-- Whether a queue has lanes of a priority.
SELECT EXISTS (SELECT 1 FROM hw_partitions WHERE queue_id = ? AND priority > 0);

-- name: add_partition
-- A new partition.
INSERT INTO hw_partitions (queue_id, name, reader, priority, created_at) VALUES (?, ?, ?, ?, ?);

-- name: raise_partition_start
-- Records before this offset are gone.
UPDATE hw_partitions SET start_offset = max(start_offset, ?) WHERE id = ?;

-- name: find_group
-- A consumer group of a queue.
SELECT id, since_lsn, options FROM hw_groups WHERE queue_id = ? AND name = ?;

-- name: change_group
-- What a group has otherwise than its queue.
UPDATE hw_groups SET options = ? WHERE id = ?;

-- name: find_groups_named
-- A consumer group in all queues of a database, or in one.
SELECT g.id FROM hw_groups g JOIN hw_queues q ON q.id = g.queue_id
WHERE q.database = ?1 AND g.name = ?2 AND (?3 = '' OR q.name = ?3);

-- name: add_group
-- A new consumer group.
INSERT INTO hw_groups (queue_id, name, since_lsn, created_at) VALUES (?, ?, ?, ?);

-- name: move_group
-- From where the group reads partitions it has not met yet.
UPDATE hw_groups SET since_lsn = ?, discovered = ? WHERE id = ?;

-- name: count_lost
-- Records that were dropped before the group read them.
UPDATE hw_groups SET lost = lost + ? WHERE id = ?;

-- name: count_retried
-- Records that were delivered to the group once more.
UPDATE hw_groups SET retried = retried + ? WHERE id = ?;

-- name: count_buried
-- Records that failed for good.
UPDATE hw_groups SET buried = buried + ? WHERE id = ?;

-- name: set_subscription
-- Where a group begins in queues that it has not read yet.
INSERT INTO hw_subscriptions (database, name, since) VALUES (?, ?, ?)
ON CONFLICT (database, name) DO UPDATE SET since = excluded.since;

-- name: get_subscription
-- Where a group begins in queues that it has not read yet.
SELECT since FROM hw_subscriptions WHERE database = ? AND name = ?;

-- name: drop_subscription
-- A group was forgotten everywhere.
DELETE FROM hw_subscriptions WHERE database = ? AND name = ?;

-- name: drop_group
-- Remove a group's row.
DELETE FROM hw_groups WHERE id = ?;

-- name: drop_group_cursors
-- Remove a group's positions.
DELETE FROM hw_cursors WHERE group_id = ?;

-- name: group_names
-- The groups of a queue.
SELECT name FROM hw_groups WHERE queue_id = ? ORDER BY id;

-- name: queue_partitions
-- The partitions of a queue.
SELECT id, name FROM hw_partitions WHERE queue_id = ? ORDER BY id;

-- name: partitions_read_by
-- The partitions that are for this group alone, in all queues of a database, or in one.
SELECT p.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
WHERE q.database = ?1 AND p.reader = ?2 AND (?3 = '' OR q.name = ?3) ORDER BY p.id;
