-- name: discover
-- Give a group that reads from the beginning a cursor in partitions it has not met. Those of a priority come before.
INSERT INTO hw_cursors (group_id, partition_id, position, token, ready_at)
SELECT g.id, p.id, p.start_offset, $2::int8,
    CASE WHEN EXISTS (SELECT 1 FROM hw_segments s WHERE s.partition_id = p.id) THEN $2::int8 END
FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
WHERE g.id = $1 AND p.priority = 0 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY p.id LIMIT $3
RETURNING partition_id, ready_at;

-- name: wake_put_off
-- Whoever was put off in a partition may look again.
UPDATE hw_cursors SET ready_at = $1 WHERE partition_id = $2 AND ready_at > $1 AND lease_until IS NULL;

-- name: undiscovered_partitions
-- Partitions that the group has no cursor for yet, without those of a priority.
SELECT p.id, p.start_offset FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
WHERE g.id = $1 AND p.priority = 0 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY p.id LIMIT $2;

-- name: unmet_groups
-- Groups that have no cursor for a partition yet, with where that begins.
SELECT g.name, p.start_offset FROM hw_partitions p JOIN hw_groups g ON g.queue_id = p.queue_id
WHERE p.id = $1 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY g.id;

-- name: undiscovered_urgent
-- Partitions of a priority that the group has no cursor for yet: they do not wait behind all the others.
SELECT p.id, p.start_offset FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.priority > 0
WHERE g.id = $1 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY p.id;

-- name: set_discovered
-- Partitions up to this one have a cursor.
UPDATE hw_groups SET discovered = $1 WHERE id = $2;

-- name: add_cursor
-- A group's first position in a partition.
INSERT INTO hw_cursors (group_id, partition_id, position, token, ready_at) VALUES ($1, $2, $3, $4, $5);

-- name: ready_cursors
-- The partitions that a group may lease now, the one that has waited longest first.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = $1 AND ready_at <= $2
    AND ready_at >= coalesce((SELECT f.ready_at FROM hw_ready_floors f WHERE f.group_id = $1 ORDER BY f.version DESC LIMIT 1), 0)
ORDER BY ready_at, partition_id LIMIT $3;

-- name: urgent_cursors
-- The partitions of a priority that a group may lease now, the highest first, among equals the one that has waited longest.
SELECT c.partition_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts, c.retry_to,
    c.cautious, c.ready_at, c.holder
FROM hw_partitions p, LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = $1 AND c.partition_id = p.id ORDER BY c.version DESC LIMIT 1) c
WHERE p.queue_id = $2 AND p.priority > 0 AND c.ready_at <= $3
ORDER BY p.priority DESC, c.ready_at, c.partition_id LIMIT $4;

-- name: get_cursor
-- A group's position in one partition.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = $1 AND partition_id = $2 ORDER BY version DESC LIMIT 1;

-- name: group_cursors
-- All positions of a group.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = $1 ORDER BY partition_id;

-- name: next_ready
-- When the next partition of a group may be leased: before the gap in its times, or behind it.
WITH known AS MATERIALIZED (
    (SELECT ready_at, gap_from, gap_to FROM hw_ready_floors WHERE group_id = $1 ORDER BY version DESC LIMIT 1)
    UNION ALL SELECT 0, 0, 0 LIMIT 1)
SELECT least(
    (SELECT min(ready_at) FROM hw_cursors WHERE group_id = $1
         AND ready_at >= (SELECT ready_at FROM known) AND ready_at <= (SELECT gap_from FROM known)),
    (SELECT min(ready_at) FROM hw_cursors WHERE group_id = $1 AND ready_at >= (SELECT gap_to FROM known)));

-- name: set_cursor
-- A group's new position and lease. The next version stands before the ones that died, see 0005_version_positions.sql.
UPDATE hw_cursors SET version = version + 1, position = $1, settled = $2, failed = $3, token = $4, lease_until = $5, leased_to = $6, attempts = $7,
    retry_to = $8, cautious = $9, ready_at = $10, holder = $11
WHERE group_id = $12 AND partition_id = $13 AND version = (
    SELECT c.version FROM hw_cursors c WHERE c.group_id = $12 AND c.partition_id = $13 ORDER BY c.version DESC LIMIT 1);

-- name: lease_list
-- Live leases of a database, or of one queue and group: a leased partition is ready when its lease ends.
SELECT q.name, p.name, p.id, g.name, c.holder, c.token, c.lease_until, c.attempts,
    c.leased_to - c.position - hw_count_between(c.settled, 0, c.leased_to) - json_array_length(coalesce(c.failed, '[]')::json)
FROM hw_queues q JOIN hw_groups g ON g.queue_id = q.id
JOIN hw_cursors c ON c.group_id = g.id AND c.ready_at > $4
JOIN hw_partitions p ON p.id = c.partition_id
WHERE q.database = $1 AND ($2 = '' OR q.name = $2) AND ($3 = '' OR g.name = $3) AND c.lease_until > $4
ORDER BY q.name, g.name, c.lease_until, p.id LIMIT nullif($5::int8, -1);

-- name: expired_leases
-- Leases that ran out: a lease that runs out makes its partition ready.
SELECT c.partition_id, g.name FROM hw_groups g
JOIN hw_cursors c ON c.group_id = g.id AND c.ready_at <= $1 AND c.ready_at >=
    coalesce((SELECT f.ready_at FROM hw_ready_floors f WHERE f.group_id = g.id ORDER BY f.version DESC LIMIT 1), 0)
WHERE c.lease_until <= $1 ORDER BY c.ready_at, c.partition_id LIMIT $2;

-- name: group_is_ready
-- Whether a group has a partition that a pop could lease now, or one it has not met yet.
SELECT EXISTS (SELECT 1 FROM hw_cursors WHERE group_id = $1 AND ready_at <= $2
               AND ready_at >= coalesce((SELECT f.ready_at FROM hw_ready_floors f WHERE f.group_id = $1 ORDER BY f.version DESC LIMIT 1), 0))
    OR EXISTS (SELECT 1 FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
               WHERE g.id = $1 AND p.reader IN ('', g.name)
                   AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id));

-- name: find_group_by_names
-- A group by all its names.
SELECT g.id FROM hw_groups g JOIN hw_queues q ON q.id = g.queue_id
WHERE q.database = $1 AND q.name = $2 AND g.name = $3;

-- name: partition_cursors
-- The positions of all groups in one partition.
SELECT c.group_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts, c.retry_to, c.cautious,
    c.ready_at, c.holder
FROM hw_partitions p JOIN hw_groups g ON g.queue_id = p.queue_id, LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id ORDER BY c.version DESC LIMIT 1) c
WHERE p.id = $1 ORDER BY c.group_id;
