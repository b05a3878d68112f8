-- name: partitions_after
-- Partitions in order, for a round of retention.
SELECT id, queue_id FROM hw_partitions WHERE id > $1 ORDER BY id LIMIT $2;

-- name: oldest_segments
-- Segments of a partition from the oldest on, without their bodies.
SELECT lsn, first_offset, count, written_at, expires_at FROM hw_segments
WHERE partition_id = $1 ORDER BY first_offset LIMIT $2;

-- name: slowest_position
-- How many groups read a partition, and the least position among them.
SELECT count(*), min(c.position) FROM hw_partitions p JOIN hw_groups g ON g.queue_id = p.queue_id, LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id ORDER BY c.version DESC LIMIT 1) c
WHERE p.id = $1;

-- name: count_groups
-- How many groups of a queue read a partition: one that is for a single group has one.
SELECT count(*) FROM hw_groups g JOIN hw_partitions p ON p.id = $2
WHERE g.queue_id = $1 AND p.reader IN ('', g.name);

-- name: drop_segments_before
-- Drop the records of a partition before an offset.
DELETE FROM hw_segments WHERE partition_id = $1 AND first_offset < $2;
