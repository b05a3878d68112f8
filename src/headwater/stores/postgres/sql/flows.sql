-- name: get_archived
-- Up to which LSN a queue is archived.
SELECT lsn FROM hw_archived WHERE queue_id = $1;

-- name: raise_archived
-- A queue is archived up to this LSN; the mark never falls.
INSERT INTO hw_archived (queue_id, lsn, archived_at) VALUES ($1, $2, $3)
ON CONFLICT (queue_id) DO UPDATE SET lsn = greatest(hw_archived.lsn, excluded.lsn), archived_at = excluded.archived_at;

-- name: drop_queue_archived
-- Forget how far a queue was archived.
DELETE FROM hw_archived WHERE queue_id = $1;

-- name: get_covered
-- The positions of a source that a partition has taken in.
SELECT covered FROM hw_loaded WHERE partition_id = $1 AND source = $2;

-- name: set_covered
-- A partition has taken these positions of a source in.
INSERT INTO hw_loaded (partition_id, source, covered) VALUES ($1, $2, $3)
ON CONFLICT (partition_id, source) DO UPDATE SET covered = excluded.covered;

-- name: drop_queue_loaded
-- Forget what the partitions of a queue have taken in.
DELETE FROM hw_loaded WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = $1);

-- name: position_list
-- Where every group of a database stands in the partitions it has met.
SELECT q.name, g.name, c.partition_id, c.position, g.since_lsn
FROM hw_queues q JOIN hw_groups g ON g.queue_id = q.id JOIN hw_cursors c ON c.group_id = g.id
WHERE q.database = $1 ORDER BY g.id, c.partition_id;

-- name: get_rollup
-- One row of the rollups.
SELECT pushed, bytes, late, completed, latency_total, latency_max, latency_bins, lag_max, retried, buried
FROM hw_rollups
WHERE database = $1 AND resolution = $2 AND bucket = $3 AND queue = $4 AND group_name = $5 AND type = $6;

-- name: set_rollup
-- One row of the rollups, new or changed.
INSERT INTO hw_rollups (database, resolution, bucket, queue, group_name, type, pushed, bytes, late, completed,
    latency_total, latency_max, latency_bins, lag_max, retried, buried)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (database, resolution, bucket, queue, group_name, type) DO UPDATE SET pushed = excluded.pushed,
    bytes = excluded.bytes, late = excluded.late, completed = excluded.completed, latency_total = excluded.latency_total,
    latency_max = excluded.latency_max, latency_bins = excluded.latency_bins, lag_max = excluded.lag_max,
    retried = excluded.retried, buried = excluded.buried;

-- name: rollup_list
-- The rollups of a stretch of time, in order.
SELECT queue, group_name, type, resolution, bucket, pushed, bytes, late, completed, latency_total, latency_max,
    latency_bins, lag_max, retried, buried
FROM hw_rollups
WHERE database = $1 AND resolution = $2 AND bucket >= $3 AND bucket < $4 AND ($5 = '' OR queue = $5)
ORDER BY bucket, queue, group_name, type;

-- name: get_rollup_state
-- Where the last rollup stood.
SELECT number, state FROM hw_rollup_state WHERE database = $1;

-- name: set_rollup_state
-- Where this rollup stands.
INSERT INTO hw_rollup_state (database, number, state) VALUES ($1, $2, $3)
ON CONFLICT (database) DO UPDATE SET number = excluded.number, state = excluded.state;
