-- name: find_lane_limits
-- The lanes of a queue that a job could belong to: of its type, and of its concurrency key.
SELECT id, parent, concurrency, rate, seconds, burst, free_at, running FROM hw_job_lanes
WHERE queue_id = ? AND type = ? AND key = ?;

-- name: get_job_lane
-- One lane.
SELECT id, parent, concurrency, rate, seconds, burst, free_at, running FROM hw_job_lanes WHERE id = ?;

-- name: add_job_lane
-- A new lane.
INSERT INTO hw_job_lanes (queue_id, type, key, parent, concurrency) VALUES (?, ?, ?, ?, ?) RETURNING id;

-- name: limit_job_lane
-- New limits for a lane.
UPDATE hw_job_lanes SET concurrency = ?, rate = ?, seconds = ?, burst = ?, blocked = 0, ready_at = ? WHERE id = ?;

-- name: set_lane_concurrency
-- The last job of a key says how many may run at once.
UPDATE hw_job_lanes SET concurrency = ? WHERE id = ? AND concurrency <> ?;

-- name: ready_lanes
-- Lanes of a queue that are worth a look, the one that has waited longest first.
SELECT id, parent, concurrency, rate, seconds, burst, free_at, running FROM hw_job_lanes
WHERE queue_id = ? AND ready_at <= ? ORDER BY ready_at LIMIT ?;

-- name: set_job_lane
-- What uses a lane's limits now, and when to look at it again.
UPDATE hw_job_lanes SET free_at = ?, running = ?, blocked = ?, ready_at = ? WHERE id = ?;

-- name: lane_entered
-- Something waits in a lane where nothing did.
UPDATE hw_job_lanes SET ready_at = ?1 WHERE id = ?2 AND ready_at IS NULL AND blocked = 0;

-- name: lane_left
-- Jobs of a lane have ended: whoever was blocked may go on.
UPDATE hw_job_lanes SET running = max(running - ?2, 0), ready_at = CASE WHEN blocked THEN ?3 ELSE ready_at END, blocked = 0
WHERE id = ?1 RETURNING parent;

-- name: wake_lanes_below
-- Lanes that the limit of their type held back may go on, as many as have room now.
UPDATE hw_job_lanes SET ready_at = ?2, blocked = 0
WHERE id IN (SELECT id FROM hw_job_lanes WHERE parent = ?1 AND blocked = 1 AND (concurrency = 0 OR running < concurrency) LIMIT ?3);

-- name: adopt_lanes
-- Lanes of concurrency keys of a type come under the limit of the type.
UPDATE hw_job_lanes SET parent = ?1 WHERE queue_id = ?2 AND type = ?3 AND id <> ?1;

-- name: adopt_jobs
-- Unfinished jobs of a type that no limit held for come under one.
UPDATE hw_jobs SET lane = ?1 WHERE queue_id = ?2 AND type = ?3 AND lane = 0
  AND state IN ('pending', 'scheduled', 'waiting', 'failed', 'processing');

-- name: count_lane
-- How many jobs of a lane run, and how many are unfinished.
SELECT coalesce(sum(state = 'processing'), 0), count(*) FROM hw_jobs
WHERE queue_id = ?1 AND lane = ?2 AND state IN ('pending', 'scheduled', 'waiting', 'failed', 'processing');

-- name: job_limits
-- The limits of types in a database.
SELECT q.name, l.type, l.rate, l.seconds, l.burst, l.concurrency, l.running FROM hw_job_lanes l
JOIN hw_job_queues q ON q.id = l.queue_id WHERE q.database = ? AND l.key = '' ORDER BY q.name, l.type;
