-- name: end_of_log
-- The newest LSN ever given out, also of what was dropped since, and the version of names, options and indexes.
SELECT greatest(coalesce((SELECT max(lsn) FROM hw_segments), 0),
                coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'last_lsn'), 0)),
       coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'catalog_version'), 0);

-- name: add_segment
-- The records that this commit adds to one partition.
INSERT INTO hw_segments
    (lsn, partition_id, first_offset, count, written_at, expires_at, origin, codec, checksum, records)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: append_segment
-- The same behind all that is there, of the log, of the partition and in time: where that is, and when.
INSERT INTO hw_segments
    (lsn, partition_id, first_offset, count, written_at, expires_at, origin, codec, checksum, records)
SELECT 1 + greatest(coalesce((SELECT max(lsn) FROM hw_segments), 0),
                    coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'last_lsn'), 0)),
    $1::int8,
    coalesce((SELECT first_offset + count FROM hw_segments WHERE partition_id = $1 ORDER BY first_offset DESC LIMIT 1),
             (SELECT start_offset FROM hw_partitions WHERE id = $1)),
    $2, greatest($3, (SELECT written_at FROM hw_segments WHERE lsn > coalesce((SELECT max(lsn) FROM hw_clock_jumps), 0)
                      ORDER BY lsn DESC LIMIT 1)),
    $4, $5, $6, $7, $8
RETURNING lsn, first_offset, written_at;

-- name: wake_idle_cursors
-- Groups that were caught up have something to read from now on.
UPDATE hw_cursors SET version = hw_cursors.version + 1, ready_at = $1
FROM hw_partitions p JOIN hw_groups g ON g.queue_id = p.queue_id, LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id ORDER BY c.version DESC LIMIT 1) newest
WHERE p.id = $2 AND newest.ready_at IS NULL AND hw_cursors.group_id = newest.group_id
    AND hw_cursors.partition_id = newest.partition_id AND hw_cursors.version = newest.version;

-- name: partition_end
-- The end of a partition: one past its newest record.
SELECT coalesce(
    (SELECT first_offset + count FROM hw_segments WHERE partition_id = $1 ORDER BY first_offset DESC LIMIT 1),
    (SELECT start_offset FROM hw_partitions WHERE id = $1)
);

-- name: segments_since
-- What others have appended since our last look: for the ends of partitions and for the transaction ids.
SELECT lsn, partition_id, first_offset, count FROM hw_segments WHERE lsn > $1 ORDER BY lsn;

-- name: touched
-- The newest segments without their records: whom to wake.
SELECT lsn, partition_id, first_offset, count FROM hw_segments WHERE lsn > $1 ORDER BY lsn LIMIT $2;

-- name: segments_from
-- Some segments of a partition, from the one that holds an offset on, without their bodies.
SELECT lsn, first_offset, count, written_at, expires_at FROM hw_segments
WHERE partition_id = $1 AND first_offset >= coalesce(
    (SELECT max(first_offset) FROM hw_segments WHERE partition_id = $1 AND first_offset <= $2), 0)
ORDER BY first_offset LIMIT 64;

-- name: newest_segments
-- Some segments of a partition from the newest back, without their bodies.
SELECT lsn, first_offset, count, written_at FROM hw_segments
WHERE partition_id = $1 ORDER BY first_offset DESC LIMIT 64;

-- name: segments_before
-- Segments of a partition before an offset, from the newest back, without their bodies.
SELECT lsn, first_offset, count, written_at FROM hw_segments
WHERE partition_id = $1 AND first_offset < $2 ORDER BY first_offset DESC LIMIT 64;

-- name: segment_body
-- The records of one segment.
SELECT codec, checksum, partition_id, first_offset, records FROM hw_segments WHERE lsn = $1;

-- name: segment_place
-- What is known of one segment, without its records.
SELECT partition_id, first_offset, count, written_at, expires_at FROM hw_segments WHERE lsn = $1;

-- name: replace_records
-- The records of a segment are given up: others stand in their place, and none is delivered.
UPDATE hw_segments SET codec = $1, checksum = $2, records = $3, expires_at = 0 WHERE lsn = $4;

-- name: count_given_up
-- Groups that had not come past these records have lost them.
UPDATE hw_groups SET lost = lost + $1
WHERE id IN (SELECT group_id FROM hw_cursors WHERE partition_id = $2 AND position <= $3);

-- name: next_lsn
-- The first segment at or after an LSN, with its time: for the search by time.
SELECT lsn, written_at FROM hw_segments WHERE lsn >= $1 ORDER BY lsn LIMIT 1;

-- name: read_segments
-- A stretch of the log with its records.
SELECT s.lsn, s.partition_id, s.first_offset, s.written_at, s.origin, s.codec, s.checksum, s.records
FROM hw_segments s WHERE s.lsn > $1 AND s.lsn <= $2 ORDER BY s.lsn LIMIT $3;

-- name: read_queue_segments
-- A stretch of the log with its records, of one queue. In LSN order without sorting: bodies are large.
SELECT s.lsn, s.partition_id, s.first_offset, s.written_at, s.origin, s.codec, s.checksum, s.records
FROM hw_segments s
WHERE s.lsn > $1 AND s.lsn <= $2
  AND s.partition_id IN (SELECT p.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
                          WHERE q.database = $4 AND q.name = $5)
ORDER BY s.lsn LIMIT $3;

-- name: find_lane
-- The address of a partition.
SELECT q.database, q.name, q.namespace, q.task, p.name
FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id WHERE p.id = $1;

-- name: queue_waiting
-- How many records of a queue wait for its slowest group in each partition, counted as `group_lag` does; all of them when
-- it has none. Where a group has not met a partition, all wait for it that came after its beginning: that is looked for
-- from the newest back, for what waits is new. Few positions have anything settled behind them: the others parse nothing.
SELECT coalesce(sum(
    coalesce((SELECT first_offset + count FROM hw_segments WHERE partition_id = p.id ORDER BY first_offset DESC LIMIT 1),
             p.start_offset)
    - coalesce((
        SELECT min(greatest(p.start_offset, coalesce(c.position, CASE WHEN g.since_lsn > 0 THEN (
            SELECT s.first_offset + s.count FROM hw_segments s WHERE s.partition_id = p.id AND s.lsn <= g.since_lsn
            ORDER BY s.first_offset DESC LIMIT 1) END, 0))
            + CASE WHEN c.settled IS NULL THEN 0 ELSE
                hw_count_between(c.settled, p.start_offset, 9223372036854775807) END)
        FROM hw_groups g LEFT JOIN LATERAL (
            SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.partition_id = p.id ORDER BY c.version DESC LIMIT 1) c ON true
        WHERE g.queue_id = p.queue_id AND p.reader IN ('', g.name)), p.start_offset)), 0)::int8
FROM hw_partitions p WHERE p.queue_id = $1;

-- name: count_records
-- How many records of a partition are kept.
SELECT coalesce(sum(count), 0)::int8 FROM hw_segments WHERE partition_id = $1;

-- name: read_partition_segments
-- Segments of a partition with their records, from the one that holds an offset on, or the next. All rows come at once:
-- they end here where there are more bytes than an answer has; a length is known without reading what is that long.
SELECT lsn, partition_id, first_offset, written_at, origin, codec, checksum, records
FROM (SELECT s.*, sum(octet_length(s.records)) OVER (ORDER BY s.first_offset) - octet_length(s.records) AS before
      FROM hw_segments s WHERE s.partition_id = $1 AND s.first_offset >= coalesce(
          (SELECT max(b.first_offset) FROM hw_segments b WHERE b.partition_id = $1 AND b.first_offset <= $2), 0)
          AND s.first_offset + s.count > $2
      ORDER BY s.first_offset LIMIT $3) s
WHERE before < 4194304 ORDER BY first_offset;
