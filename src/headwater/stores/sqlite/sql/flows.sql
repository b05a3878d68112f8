-- name: get_archived
-- Up to which LSN a queue is archived.
SELECT lsn FROM hw_archived WHERE queue_id = ?;

-- name: raise_archived
-- A queue is archived up to this LSN; the mark never falls.
INSERT INTO hw_archived (queue_id, lsn, archived_at) VALUES (?, ?, ?)
ON CONFLICT (queue_id) DO UPDATE SET lsn = max(lsn, excluded.lsn), archived_at = excluded.archived_at;

-- name: drop_queue_archived
-- Forget how far a queue was archived.
DELETE FROM hw_archived WHERE queue_id = ?;

-- name: get_covered
-- The positions of a source that a partition has taken in.
SELECT covered FROM hw_loaded WHERE partition_id = ? AND source = ?;

-- name: set_covered
-- A partition has taken these positions of a source in.
INSERT INTO hw_loaded (partition_id, source, covered) VALUES (?, ?, ?)
ON CONFLICT (partition_id, source) DO UPDATE SET covered = excluded.covered;

-- name: drop_queue_loaded
-- Forget what the partitions of a queue have taken in.
DELETE FROM hw_loaded WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: position_list
-- Where every group of a database stands in the partitions it has met.
SELECT q.name, g.name, c.partition_id, c.position, g.since_lsn
FROM hw_queues q JOIN hw_groups g ON g.queue_id = q.id JOIN hw_cursors c ON c.group_id = g.id
WHERE q.database = ? ORDER BY g.id, c.partition_id;

-- name: get_rollup
-- One row of the rollups.
SELECT pushed, bytes, late, completed, latency_total, latency_max, latency_bins, lag_max, retried, buried
FROM hw_rollups
WHERE database = ? AND resolution = ? AND bucket = ? AND queue = ? AND group_name = ? AND type = ?;

-- name: set_rollup
-- One row of the rollups, new or changed.
INSERT OR REPLACE INTO hw_rollups (database, resolution, bucket, queue, group_name, type, pushed, bytes, late, completed,
    latency_total, latency_max, latency_bins, lag_max, retried, buried)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: rollup_list
-- The rollups of a stretch of time, in order.
SELECT queue, group_name, type, resolution, bucket, pushed, bytes, late, completed, latency_total, latency_max,
    latency_bins, lag_max, retried, buried
FROM hw_rollups
WHERE database = ?1 AND resolution = ?2 AND bucket >= ?3 AND bucket < ?4 AND (?5 = '' OR queue = ?5)
ORDER BY bucket, queue, group_name, type;

-- name: get_rollup_state
-- Where the last rollup stood.
SELECT number, state FROM hw_rollup_state WHERE database = ?;

-- name: set_rollup_state
-- Where this rollup stands.
INSERT INTO hw_rollup_state (database, number, state) VALUES (?, ?, ?)
ON CONFLICT (database) DO UPDATE SET number = excluded.number, state = excluded.state;
