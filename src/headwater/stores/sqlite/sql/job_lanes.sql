-- name: find_lane_limits
-- The lanes of a queue that a job could belong to: of its type, and of its concurrency key.
SELECT id, gate FROM hw_job_lanes WHERE queue_id = ? AND type = ? AND key = ?;

-- name: get_job_lane
-- One lane.
SELECT id, parent, concurrency, rate, seconds, burst, free_at, running, takes_turns, gate, type FROM hw_job_lanes WHERE id = ?;

-- name: add_job_lane
-- A new lane.
INSERT INTO hw_job_lanes (queue_id, type, key, parent, concurrency) VALUES (?, ?, ?, ?, ?) RETURNING id;

-- name: add_key_lane
-- A new lane of a key, with what holds for each key of its type if it takes turns.
INSERT INTO hw_job_lanes (queue_id, type, key, parent, concurrency, rate, seconds, burst, takes_turns, gate)
SELECT ?1, ?2, ?3, ?4, CASE WHEN ?5 > 0 OR ?6 = 0 THEN ?5 ELSE coalesce(p.each_concurrency, 0) END,
       CASE ?6 WHEN 1 THEN coalesce(p.each_rate, 0) ELSE 0 END, coalesce(p.each_seconds, 1), coalesce(p.each_burst, 1), ?6, ?7
FROM (SELECT 1) LEFT JOIN hw_job_lanes p ON p.id = ?4 RETURNING id;

-- name: get_lane_limits
-- The limits of a type, and those of each key of it.
SELECT concurrency, rate, seconds, burst, each_concurrency, each_rate, each_seconds, each_burst FROM hw_job_lanes WHERE id = ?;

-- name: limit_each_key
-- New limits for each key of a type.
UPDATE hw_job_lanes SET each_concurrency = ?1, each_rate = ?2, each_seconds = ?3, each_burst = ?4 WHERE id = ?5;

-- name: limit_key_lanes
-- They hold for the keys that are there already.
UPDATE hw_job_lanes SET concurrency = ?1, rate = ?2, seconds = ?3, burst = ?4, free_at = 0, blocked = 0, ready_at = ?6
WHERE parent = ?5 AND takes_turns = 1;

-- name: count_key_lanes
-- How many unfinished jobs the limits of each key of a type hold for.
SELECT count(*) FROM hw_jobs WHERE lane IN (SELECT id FROM hw_job_lanes WHERE parent = ? AND takes_turns = 1)
  AND state IN ('pending', 'scheduled', 'waiting', 'failed', 'processing');

-- name: limit_job_lane
-- New limits for a lane.
UPDATE hw_job_lanes SET concurrency = ?, rate = ?, seconds = ?, burst = ?, free_at = 0, blocked = 0, ready_at = ? WHERE id = ?;

-- name: set_lane_concurrency
-- The last job of a key says how many may run at once: it may be more than before.
UPDATE hw_job_lanes SET concurrency = ?1, ready_at = CASE WHEN blocked THEN 0 ELSE ready_at END, blocked = 0
WHERE id = ?2 AND concurrency <> ?1 RETURNING id;

-- name: set_concurrency_behind
-- What the last job of a key says holds for all its lanes, in whichever queue.
UPDATE hw_job_lanes SET concurrency = ?1, ready_at = CASE WHEN blocked THEN 0 ELSE ready_at END, blocked = 0 WHERE gate = ?2;

-- name: ready_lanes
-- Lanes of a queue that are worth a look, the one that has waited longest first.
SELECT id, parent, concurrency, rate, seconds, burst, free_at, running, takes_turns, gate, type FROM hw_job_lanes
WHERE queue_id = ?1 AND ready_at <= ?2 AND (functions = 0 OR ?4 IS NULL OR type IN (SELECT value FROM json_each(?4)))
ORDER BY ready_at LIMIT ?3;

-- name: lanes_later
-- When the next lane of a queue will be worth a look that is not yet.
SELECT min(ready_at) FROM hw_job_lanes WHERE queue_id = ?1 AND ready_at > ?2 AND (functions = 0 OR ?3 IS NULL OR type IN (SELECT value FROM json_each(?3)));

-- name: lanes_held
-- The limited jobs that a worker holds, by their lane and type.
SELECT l.id, l.parent, l.gate, j.type, count(*) FROM hw_jobs j JOIN hw_job_lanes l ON l.id = j.lane
WHERE j.worker = ?1 AND j.state = 'processing' GROUP BY l.id, l.parent, l.gate, j.type;

-- name: keep_for_function
-- The jobs of a lane are for those workers only that have the function.
UPDATE hw_job_lanes SET functions = 1 WHERE id = ?;

-- name: move_to_lane
-- These jobs wait in this lane from now on.
UPDATE hw_jobs SET lane = ?1 WHERE number IN (SELECT value FROM json_each(?2));

-- name: set_job_lane
-- What uses a lane's limits now, and when to look at it again.
UPDATE hw_job_lanes SET free_at = ?, running = ?, blocked = ?, ready_at = ? WHERE id = ?;

-- name: lane_entered
-- Something waits in a lane where nothing did.
UPDATE hw_job_lanes SET ready_at = ?1 WHERE id = ?2 AND ready_at IS NULL AND blocked = 0;

-- name: lane_left
-- Jobs of a lane have ended: whoever was blocked may go on.
UPDATE hw_job_lanes SET running = max(running - ?2, 0), ready_at = CASE WHEN blocked THEN ?3 ELSE ready_at END, blocked = 0
WHERE id = ?1 RETURNING parent, gate;

-- name: wake_lanes_below
-- Lanes that the limit of their type held back may go on, as many as have room now, also behind their gates.
UPDATE hw_job_lanes SET ready_at = ?2, blocked = 0
WHERE id IN (SELECT l.id FROM hw_job_lanes l LEFT JOIN hw_job_lanes g ON g.id = l.gate
             WHERE l.parent = ?1 AND l.blocked = 1 AND (l.concurrency = 0 OR l.running < l.concurrency)
               AND (g.id IS NULL OR g.concurrency = 0 OR g.running < g.concurrency)
             ORDER BY l.id LIMIT ?3);

-- name: wake_lanes_behind
-- Lanes of a key that its gate held back may go on: all of them, so that the oldest job among theirs comes first.
UPDATE hw_job_lanes SET ready_at = ?2, blocked = 0 WHERE gate = ?1 AND blocked = 1;

-- name: lanes_after
-- Where a part of all lanes ends that begins after one of them.
SELECT max(id), count(*) FROM (SELECT id FROM hw_job_lanes WHERE id > ?1 ORDER BY id LIMIT ?2);

-- name: drop_idle_lanes
-- Forget lanes of keys that nothing is in, and whose rate lets the next one start at once.
DELETE FROM hw_job_lanes WHERE id > ?1 AND id <= ?2 AND key <> '' AND queue_id <> 0 AND running = 0 AND blocked = 0
  AND free_at <= ?3 AND NOT EXISTS (
    SELECT 1 FROM hw_jobs j WHERE j.lane = hw_job_lanes.id AND j.lane > 0 AND j.state <> 'completed')
RETURNING gate;

-- name: drop_idle_gate
-- Forget a gate that no lane leads to any more.
DELETE FROM hw_job_lanes WHERE id = ?1 AND queue_id = 0 AND running = 0
  AND NOT EXISTS (SELECT 1 FROM hw_job_lanes l WHERE l.gate = ?1 AND l.gate > 0);

-- name: adopt_lanes
-- Lanes of concurrency keys of a type come under the limit of the type.
UPDATE hw_job_lanes SET parent = ?1 WHERE queue_id = ?2 AND type = ?3 AND id <> ?1;

-- name: adopt_jobs
-- Unfinished jobs of a type that no limit held for come under one.
UPDATE hw_jobs SET lane = ?1 WHERE queue_id = ?2 AND type = ?3 AND lane = 0
  AND state IN ('pending', 'scheduled', 'waiting', 'failed', 'processing');

-- name: count_type
-- How many jobs of a type run in a queue, in whichever lane, and how many are unfinished.
SELECT coalesce(sum(state = 'processing'), 0), count(*) FROM hw_jobs
WHERE queue_id = ?1 AND type = ?2 AND state IN ('pending', 'scheduled', 'waiting', 'failed', 'processing');

-- name: recount_lane
-- Jobs came to a lane that some of them run in already.
UPDATE hw_job_lanes SET running = ?1, blocked = 0, ready_at = ?2 WHERE id = ?3;

-- name: job_limits
-- The limits of types in a database, and those of each key of a type.
SELECT q.name, l.type, l.rate, l.seconds, l.burst, l.concurrency, l.running, 0 FROM hw_job_lanes l
JOIN hw_job_queues q ON q.id = l.queue_id WHERE q.database = ?1 AND l.key = '' AND (l.rate > 0 OR l.concurrency > 0)
UNION ALL
SELECT q.name, l.type, l.each_rate, l.each_seconds, l.each_burst, l.each_concurrency, l.running, 1 FROM hw_job_lanes l
JOIN hw_job_queues q ON q.id = l.queue_id WHERE q.database = ?1 AND l.key = '' AND (l.each_rate > 0 OR l.each_concurrency > 0)
ORDER BY 1, 2, 8;
