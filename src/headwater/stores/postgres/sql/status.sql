-- name: queue_list
-- The queues of a database with what is in them: some of those whose names fit a pattern.
SELECT q.database, q.name, q.namespace, q.task, q.options, q.created_at,
    (SELECT count(*) FROM hw_partitions p WHERE p.queue_id = q.id),
    (SELECT coalesce(sum(s.count), 0)::int8 FROM hw_partitions p JOIN hw_segments s ON s.partition_id = p.id WHERE p.queue_id = q.id),
    (SELECT count(*) FROM hw_dead_letters d WHERE d.queue_id = q.id),
    q.id
FROM hw_queues q WHERE q.database = $1 AND q.name > $2
    AND hw_fits(q.name, $3::text::json ->> starts_with(q.name, 'headwater/')::int)
ORDER BY q.name LIMIT nullif($4::int8, -1);

-- name: group_list
-- The consumer groups of a database, or of one queue: some of those whose queues fit a pattern.
SELECT g.id, q.database, q.name, g.name, g.lost, g.discovered, g.since_lsn, q.id, g.retried, g.buried
FROM hw_groups g JOIN hw_queues q ON q.id = g.queue_id
WHERE q.database = $1 AND ($2 = '' OR q.name = $2) AND (q.name, g.name) > ($3, $4)
    AND hw_fits(q.name, $5::text::json ->> starts_with(q.name, 'headwater/')::int)
ORDER BY q.name, g.name LIMIT nullif($6::int8, -1);

-- name: group_lag
-- Of a group, over the partitions it has met: how many there are, records waiting, leases, records under them, and in how
-- many partitions any wait. What was dropped does not wait, nor what was acked out of order or buried. Last, what was
-- dropped before it was delivered, and not counted yet: the next pop does.
SELECT count(*), coalesce(sum(waiting), 0)::int8, count(*) FILTER (WHERE is_leased), coalesce(sum(leased), 0)::int8,
    count(*) FILTER (WHERE waiting > 0), coalesce(sum(gone), 0)::int8
FROM (
    SELECT coalesce((SELECT first_offset + count FROM hw_segments WHERE partition_id = c.partition_id
                     ORDER BY first_offset DESC LIMIT 1), p.start_offset) - greatest(c.position, p.start_offset)
            - hw_count_between(c.settled, p.start_offset, 9223372036854775807) AS waiting,
        c.lease_until > $2 AS is_leased,
        CASE WHEN c.lease_until > $2 THEN c.leased_to - c.position - hw_count_between(c.settled, 0, c.leased_to) ELSE 0 END
            AS leased,
        greatest(p.start_offset - CASE WHEN c.lease_until > $2 THEN c.leased_to ELSE c.position END, 0) AS gone
    FROM hw_cursors c JOIN hw_partitions p ON p.id = c.partition_id WHERE c.group_id = $1
) met;

-- name: group_undiscovered
-- Records waiting in partitions that a group has not met yet, and when the oldest of them was written.
SELECT coalesce(sum(s.count), 0)::int8, min(s.written_at), count(DISTINCT p.id)
FROM hw_partitions p JOIN hw_segments s ON s.partition_id = p.id
WHERE p.queue_id = $1 AND p.id > $2 AND s.lsn > $3 AND p.reader IN ('', $4)
    AND NOT EXISTS (SELECT 1 FROM hw_cursors c WHERE c.group_id = $5 AND c.partition_id = p.id);

-- name: group_oldest_waiting
-- When the oldest record that waits for a group was written.
SELECT min((SELECT written_at FROM hw_segments s WHERE s.partition_id = c.partition_id
              AND s.first_offset >= coalesce((SELECT max(b.first_offset) FROM hw_segments b
                  WHERE b.partition_id = c.partition_id AND b.first_offset <= c.position), 0)
            ORDER BY s.first_offset LIMIT 1))
FROM hw_cursors c WHERE c.group_id = $1 AND c.ready_at IS NOT NULL;

-- name: partition_list
-- The partitions of a database, or of one queue, with where their records begin and end.
SELECT q.name, p.name, p.id, p.start_offset,
    coalesce((SELECT first_offset + count FROM hw_segments WHERE partition_id = p.id ORDER BY first_offset DESC LIMIT 1),
             p.start_offset),
    p.created_at
FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
WHERE q.database = $1 AND ($2 = '' OR q.name = $2) AND p.id > $3
    AND hw_fits(q.name, $5::text::json ->> starts_with(q.name, 'headwater/')::int)
ORDER BY p.id LIMIT nullif($4::int8, -1);

-- name: group_cursor_list
-- Where a group stands in each partition of a database, or of one queue.
SELECT q.name, p.name, p.id, c.position, greatest(c.position, p.start_offset)
        + hw_count_between(c.settled, p.start_offset, 9223372036854775807), c.lease_until,
    coalesce((SELECT first_offset + count FROM hw_segments WHERE partition_id = p.id ORDER BY first_offset DESC LIMIT 1),
             p.start_offset), c.leased_to, c.settled
FROM hw_groups g JOIN hw_queues q ON q.id = g.queue_id
JOIN hw_cursors c ON c.group_id = g.id JOIN hw_partitions p ON p.id = c.partition_id
WHERE q.database = $1 AND g.name = $2 ORDER BY q.name, p.id LIMIT nullif($3::int8, -1);
