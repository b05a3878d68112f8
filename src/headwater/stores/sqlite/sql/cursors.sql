-- name: discover
-- Give a group that reads from the beginning a cursor in partitions it has not met. Those of a priority come before.
INSERT INTO hw_cursors (group_id, partition_id, position, token, ready_at)
SELECT g.id, p.id, p.start_offset, ?2, CASE WHEN EXISTS (SELECT 1 FROM hw_segments s WHERE s.partition_id = p.id) THEN ?2 END
FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
WHERE g.id = ?1 AND p.priority = 0 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY p.id LIMIT ?3
RETURNING partition_id, ready_at;

-- name: wake_put_off
-- Whoever was put off in a partition may look again.
UPDATE hw_cursors SET ready_at = ?1 WHERE partition_id = ?2 AND ready_at > ?1 AND lease_until IS NULL;

-- name: undiscovered_partitions
-- Partitions that the group has no cursor for yet, without those of a priority.
SELECT p.id, p.start_offset FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
WHERE g.id = ? AND p.priority = 0 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY p.id LIMIT ?;

-- name: unmet_groups
-- Groups that have no cursor for a partition yet, with where that begins.
SELECT g.name, p.start_offset FROM hw_partitions p JOIN hw_groups g ON g.queue_id = p.queue_id
WHERE p.id = ?1 AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id)
ORDER BY g.id;

-- name: undiscovered_urgent
-- Partitions of a priority that the group has no cursor for yet: they do not wait behind all the others.
SELECT p.id, p.start_offset FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.priority > 0
WHERE g.id = ? AND p.reader IN ('', g.name)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id);

-- name: set_discovered
-- Partitions up to this one have a cursor.
UPDATE hw_groups SET discovered = ? WHERE id = ?;

-- name: add_cursor
-- A group's first position in a partition.
INSERT INTO hw_cursors (group_id, partition_id, position, token, ready_at) VALUES (?, ?, ?, ?, ?);

-- name: ready_cursors
-- The partitions that a group may lease now, the one that has waited longest first.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = ? AND ready_at <= ? ORDER BY ready_at LIMIT ?;

-- name: urgent_cursors
-- The partitions of a priority that a group may lease now, the highest first, among equals the one that has waited longest.
SELECT c.partition_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts, c.retry_to,
    c.cautious, c.ready_at, c.holder
FROM hw_partitions p CROSS JOIN hw_cursors c ON c.group_id = ?1 AND c.partition_id = p.id
WHERE p.queue_id = ?2 AND p.priority > 0 AND c.ready_at <= ?3
ORDER BY p.priority DESC, c.ready_at LIMIT ?4;

-- name: get_cursor
-- A group's position in one partition.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = ? AND partition_id = ?;

-- name: group_cursors
-- All positions of a group.
SELECT partition_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE group_id = ?;

-- name: next_ready
-- When the next partition of a group may be leased.
SELECT min(ready_at) FROM hw_cursors WHERE group_id = ? AND ready_at IS NOT NULL;

-- name: set_cursor
-- A group's new position and lease.
UPDATE hw_cursors SET position = ?, settled = ?, failed = ?, token = ?, lease_until = ?, leased_to = ?, attempts = ?,
    retry_to = ?, cautious = ?, ready_at = ?, holder = ?
WHERE group_id = ? AND partition_id = ?;

-- name: lease_list
-- Live leases of a database, or of one queue and group: a leased partition is ready when its lease ends.
SELECT q.name, p.name, p.id, g.name, c.holder, c.token, c.lease_until, c.attempts,
    c.leased_to - c.position - (SELECT count(*) FROM json_each(coalesce(c.settled, '[]')) WHERE value < c.leased_to)
        - (SELECT count(*) FROM json_each(coalesce(c.failed, '[]')))
FROM hw_queues q JOIN hw_groups g ON g.queue_id = q.id
CROSS JOIN hw_cursors c ON c.group_id = g.id AND c.ready_at > ?4
JOIN hw_partitions p ON p.id = c.partition_id
WHERE q.database = ?1 AND (?2 = '' OR q.name = ?2) AND (?3 = '' OR g.name = ?3) AND c.lease_until > ?4
ORDER BY q.name, g.name, c.lease_until, p.id LIMIT ?5;

-- name: expired_leases
-- Leases that ran out: a lease that runs out makes its partition ready.
SELECT c.partition_id, g.name FROM hw_groups g
CROSS JOIN hw_cursors c ON c.group_id = g.id AND c.ready_at <= ?1
WHERE c.lease_until <= ?1 LIMIT ?2;

-- name: group_is_ready
-- Whether a group has a partition that a pop could lease now, or one it has not met yet.
SELECT EXISTS (SELECT 1 FROM hw_cursors WHERE group_id = ?1 AND ready_at <= ?2)
    OR EXISTS (SELECT 1 FROM hw_groups g JOIN hw_partitions p ON p.queue_id = g.queue_id AND p.id > g.discovered
               WHERE g.id = ?1 AND p.reader IN ('', g.name)
                   AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id));

-- name: find_group_by_names
-- A group by all its names.
SELECT g.id FROM hw_groups g JOIN hw_queues q ON q.id = g.queue_id
WHERE q.database = ? AND q.name = ? AND g.name = ?;

-- name: partition_cursors
-- The positions of all groups in one partition.
SELECT group_id, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at,
    holder
FROM hw_cursors WHERE partition_id = ?;
