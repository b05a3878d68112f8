-- name: open_commit
-- The version and the time; and if the version is not the one that is known, the rows of `look` and of `next_delayed`.
SELECT v.version, (extract(epoch FROM clock_timestamp()) * 1000000)::int8, l.*, d.*
FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS version FROM hw_version) v
LEFT JOIN LATERAL (
    SELECT coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'catalog_version'), 0),
           greatest(coalesce((SELECT max(lsn) FROM hw_segments), 0),
                    coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'last_lsn'), 0)),
           coalesce((SELECT max(id) FROM hw_partitions), 0),
           coalesce((SELECT max(id) FROM hw_clock_jumps), 0),
           greatest(coalesce((SELECT written_at FROM hw_segments
                         WHERE lsn > coalesce((SELECT max(lsn) FROM hw_clock_jumps), 0) ORDER BY lsn DESC LIMIT 1), 0),
               coalesce((SELECT value::int8 FROM hw_meta
                         WHERE key = 'clock_at/' || coalesce((SELECT max(id) FROM hw_clock_jumps), 0)), 0)),
           coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'access_version'), 0),
           coalesce((SELECT value FROM hw_meta WHERE key = 'identity'), '')
    WHERE v.version <> $1) l ON true
LEFT JOIN LATERAL (
    SELECT (SELECT min(due_at) FROM hw_delayed), EXISTS (SELECT 1 FROM hw_delayed_ids) WHERE v.version <> $1) d ON true;

-- name: bodies_since
-- The records of segments that others have appended: rows of `segment_body`, with the LSN before each.
SELECT lsn, codec, checksum, partition_id, first_offset, records FROM hw_segments WHERE lsn > $1 ORDER BY lsn LIMIT $2;

-- name: cursors_ahead
-- Positions of groups in partitions, those that are there: rows of `get_cursor`, with the group before each.
SELECT c.group_id, c.partition_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts,
    c.retry_to, c.cautious, c.ready_at, c.holder
FROM unnest($1::int8[], $2::int8[]) h (group_id, partition_id), LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = h.group_id AND c.partition_id = h.partition_id
    ORDER BY c.version DESC LIMIT 1) c;

-- name: ready_ahead
-- What groups may lease now, so many partitions of each: rows of `ready_cursors`, with the group and the time before which
-- none of its partitions is ready. A group without any has a row without a partition.
SELECT g.id, g.floor, c.partition_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts,
    c.retry_to, c.cautious, c.ready_at, c.holder
FROM (SELECT w.id, w.wanted, coalesce((SELECT f.ready_at FROM hw_ready_floors f WHERE f.group_id = w.id ORDER BY f.version DESC LIMIT 1), 0)
          AS floor FROM unnest($1::int8[], $2::int8[]) w (id, wanted)) g
LEFT JOIN LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.ready_at <= $3 AND c.ready_at >= g.floor
    ORDER BY c.ready_at, c.partition_id LIMIT g.wanted) c ON true
ORDER BY g.id, c.ready_at, c.partition_id;

-- name: raise_ready_floor
-- None of a group's partitions is ready before this time, as was seen now.
CALL hw_raise_ready_floor($1, $2, $3);

-- name: segments_ahead
-- Segments from where groups would read next, where they are ready ($1, $2) and where they report now ($5, $6): of at
-- most $4 partitions, with the records of those among the next $7 that are not known ($8).
SELECT s.partition_id, p.start, s.lsn, s.first_offset, s.count, s.written_at, s.expires_at, s.codec, s.checksum,
    CASE WHEN s.first_offset >= p.start + $7 OR s.lsn = ANY ($8::int8[]) THEN NULL ELSE s.records END
FROM (SELECT partition_id, start FROM (
          SELECT c.partition_id, c.position AS start, c.ready_at
          FROM unnest($1::int8[], $2::int8[]) g (id, wanted), LATERAL (
              SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.ready_at <= $3 AND c.ready_at >=
                  coalesce((SELECT f.ready_at FROM hw_ready_floors f WHERE f.group_id = g.id ORDER BY f.version DESC LIMIT 1), 0)
              ORDER BY c.ready_at, c.partition_id LIMIT g.wanted) c
          WHERE c.lease_until IS NULL
          UNION ALL
          SELECT c.partition_id, c.leased_to, $3 FROM unnest($5::int8[], $6::int8[]) h (group_id, partition_id), LATERAL (
              SELECT * FROM hw_cursors c WHERE c.group_id = h.group_id AND c.partition_id = h.partition_id
              ORDER BY c.version DESC LIMIT 1) c) found
      GROUP BY partition_id, start ORDER BY min(ready_at), partition_id LIMIT $4) p,
LATERAL (
    SELECT * FROM hw_segments s WHERE s.partition_id = p.partition_id AND s.first_offset >= coalesce(
            (SELECT max(b.first_offset) FROM hw_segments b
             WHERE b.partition_id = p.partition_id AND b.first_offset <= p.start), 0)
    ORDER BY s.first_offset LIMIT 4) s
ORDER BY s.partition_id, p.start, s.first_offset;

-- name: ready_heads_ahead
-- The rows of `ready_heads`, with what a lease of each would answer: rows of `lease_jobs` behind priority, number and type.
SELECT h.before, h.number, h.type, j.id, j.queue_id, j.token + 1, j.attempts + 1, j.attempts_max, j.work, j.depends,
    coalesce(j.error, '')
FROM (
    WITH floor AS MATERIALIZED (
        (SELECT priority, number FROM hw_job_floors WHERE queue_id = $1 AND lane = $2 ORDER BY version DESC LIMIT 1)
        UNION ALL SELECT 9223372036854775807, 0 LIMIT 1)
    (SELECT -priority AS before, number, type FROM hw_jobs WHERE queue_id = $1 AND lane = $2 AND state = 'pending'
         AND priority = (SELECT priority FROM floor) AND number >= (SELECT number FROM floor) ORDER BY number LIMIT $3)
    UNION ALL
    (SELECT -priority, number, type FROM hw_jobs WHERE queue_id = $1 AND lane = $2 AND state = 'pending'
         AND priority < (SELECT priority FROM floor) ORDER BY priority DESC, number LIMIT $3)
    ORDER BY before, number LIMIT $3
) h, LATERAL (SELECT * FROM hw_jobs j WHERE j.number = h.number LIMIT 1) j
ORDER BY h.before, h.number;

-- name: lease_foreseen
-- These jobs belong to a worker now: what `lease_jobs` does, when its answer is known.
UPDATE hw_jobs SET state = 'processing', worker = $1, token = token + 1, attempts = attempts + 1, started_at = $2,
    changed_at = $2, progress = NULL
WHERE number = ANY (hw_numbers($3));
