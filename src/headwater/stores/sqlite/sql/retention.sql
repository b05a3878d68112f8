-- name: partitions_after
-- Partitions in order, for a round of retention.
SELECT id, queue_id FROM hw_partitions WHERE id > ? ORDER BY id LIMIT ?;

-- name: oldest_segments
-- Segments of a partition from the oldest on, without their bodies.
SELECT lsn, first_offset, count, written_at, expires_at FROM hw_segments
WHERE partition_id = ? ORDER BY first_offset LIMIT ?;

-- name: slowest_position
-- How many groups read a partition, and the least position among them.
SELECT count(*), min(position) FROM hw_cursors WHERE partition_id = ?;

-- name: count_groups
-- How many groups of a queue read a partition: one that is for a single group has one.
SELECT count(*) FROM hw_groups g JOIN hw_partitions p ON p.id = ?2
WHERE g.queue_id = ?1 AND p.reader IN ('', g.name);

-- name: drop_segments_before
-- Drop the records of a partition before an offset.
DELETE FROM hw_segments WHERE partition_id = ? AND first_offset < ?;

-- name: silent_rooms
-- Rooms with a partition in this stretch that have no kept messages, now or ever, no record, no group and no options.
SELECT DISTINCT q.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
WHERE p.id > ?1 AND p.id <= ?2 AND substr(q.name, 1, 6) = 'rooms/'
  AND q.namespace = '' AND q.task = '' AND q.options = ?3
  AND NOT EXISTS (SELECT 1 FROM hw_partitions k WHERE k.queue_id = q.id AND k.name = ?4)
  AND NOT EXISTS (SELECT 1 FROM hw_partitions o JOIN hw_segments s ON s.partition_id = o.id WHERE o.queue_id = q.id)
  AND NOT EXISTS (SELECT 1 FROM hw_groups g WHERE g.queue_id = q.id)
ORDER BY q.id LIMIT ?5;
