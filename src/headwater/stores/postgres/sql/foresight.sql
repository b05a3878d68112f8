-- name: open_commit
-- The version, and if it is not the one that is known, the rows of `look` and of `next_delayed`.
SELECT v.version, l.*, d.*
FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS version FROM hw_version) v
LEFT JOIN LATERAL (
    SELECT coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'catalog_version'), 0),
           greatest(coalesce((SELECT max(lsn) FROM hw_segments), 0),
                    coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'last_lsn'), 0)),
           coalesce((SELECT max(id) FROM hw_partitions), 0),
           coalesce((SELECT max(id) FROM hw_clock_jumps), 0),
           coalesce((SELECT written_at FROM hw_segments
                     WHERE lsn > coalesce((SELECT max(lsn) FROM hw_clock_jumps), 0) ORDER BY lsn DESC LIMIT 1), 0),
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
FROM unnest($1::int8[], $2::int8[]) h (group_id, partition_id)
JOIN hw_cursors c ON c.group_id = h.group_id AND c.partition_id = h.partition_id;

-- name: ready_ahead
-- What groups may lease now, so many partitions of each: rows of `ready_cursors`, with the group before each.
SELECT c.group_id, c.partition_id, c.position, c.settled, c.failed, c.token, c.lease_until, c.leased_to, c.attempts,
    c.retry_to, c.cautious, c.ready_at, c.holder
FROM unnest($1::int8[], $2::int8[]) g (id, wanted), LATERAL (
    SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.ready_at <= $3 ORDER BY c.ready_at, c.partition_id
    LIMIT g.wanted) c
ORDER BY c.group_id, c.ready_at, c.partition_id;

-- name: segments_ahead
-- Segments from where groups would read next, where they are ready ($1, $2) and where they report now ($5, $6): of at
-- most $4 partitions, with the records of those among the next $7 that are not known ($8).
SELECT s.partition_id, p.start, s.lsn, s.first_offset, s.count, s.written_at, s.expires_at, s.codec, s.checksum,
    CASE WHEN s.first_offset >= p.start + $7 OR s.lsn = ANY ($8::int8[]) THEN NULL ELSE s.records END
FROM (SELECT partition_id, start FROM (
          SELECT c.partition_id, c.position AS start, c.ready_at
          FROM unnest($1::int8[], $2::int8[]) g (id, wanted), LATERAL (
              SELECT * FROM hw_cursors c WHERE c.group_id = g.id AND c.ready_at <= $3
              ORDER BY c.ready_at, c.partition_id LIMIT g.wanted) c
          WHERE c.lease_until IS NULL
          UNION ALL
          SELECT c.partition_id, c.leased_to, $3 FROM unnest($5::int8[], $6::int8[]) h (group_id, partition_id)
          JOIN hw_cursors c ON c.group_id = h.group_id AND c.partition_id = h.partition_id) found
      GROUP BY partition_id, start ORDER BY min(ready_at), partition_id LIMIT $4) p,
LATERAL (
    SELECT * FROM hw_segments s WHERE s.partition_id = p.partition_id AND s.first_offset >= coalesce(
            (SELECT max(b.first_offset) FROM hw_segments b
             WHERE b.partition_id = p.partition_id AND b.first_offset <= p.start), 0)
    ORDER BY s.first_offset LIMIT 4) s
ORDER BY s.partition_id, p.start, s.first_offset;
