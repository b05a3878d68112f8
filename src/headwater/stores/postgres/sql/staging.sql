-- name: stage_part
-- Keep a part of an upload; the same part again takes its place.
INSERT INTO hw_staged (database, upload, part, staged_at, bytes, body) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (database, upload, part)
DO UPDATE SET staged_at = excluded.staged_at, bytes = excluded.bytes, body = excluded.body;

-- name: staged_bytes
-- How much a database has staged: in other uploads, and in other parts of this one.
SELECT coalesce(sum(CASE WHEN upload = $2 THEN 0 ELSE bytes END), 0)::int8,
       coalesce(sum(CASE WHEN upload = $2 AND part <> $3 THEN bytes ELSE 0 END), 0)::int8
FROM hw_staged WHERE database = $1;

-- name: staged_parts
-- The parts of an upload, in order.
SELECT part, body FROM hw_staged WHERE database = $1 AND upload = $2 ORDER BY part;

-- name: unstage
-- Drop an upload.
DELETE FROM hw_staged WHERE database = $1 AND upload = $2;

-- name: drop_old_staged
-- Drop what was staged for long and never committed.
DELETE FROM hw_staged WHERE database = $1 AND staged_at < $2;
