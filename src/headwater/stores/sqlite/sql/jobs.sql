-- name: find_job_queue
-- A job queue by its name.
SELECT id, database, name, paused FROM hw_job_queues WHERE database = ? AND name = ?;

-- name: find_job_queues
-- The job queues of a database.
SELECT id, database, name, paused FROM hw_job_queues WHERE database = ? ORDER BY id;

-- name: all_job_queues
-- The job queues of every database.
SELECT id, database, name, paused FROM hw_job_queues ORDER BY id;

-- name: add_job_queue
-- A new job queue.
INSERT INTO hw_job_queues (database, name) VALUES (?, ?);

-- name: pause_job_queue
-- Hand out its jobs, or do not.
UPDATE hw_job_queues SET paused = ? WHERE id = ?;

-- name: job_config
-- The settings of a database and of its queues.
SELECT queue, name, value FROM hw_job_config WHERE database = ? ORDER BY queue, name;

-- name: set_job_config
-- Remember one setting.
INSERT INTO hw_job_config (database, queue, name, value) VALUES (?, ?, ?, ?)
ON CONFLICT (database, queue, name) DO UPDATE SET value = excluded.value;

-- name: drop_job_config
-- Forget one setting.
DELETE FROM hw_job_config WHERE database = ? AND queue = ? AND name = ?;

-- name: last_job_number
-- The highest number ever given to a job.
SELECT max(coalesce((SELECT max(number) FROM hw_jobs), 0),
           coalesce((SELECT value FROM hw_meta WHERE key = 'last_job'), 0));

-- name: add_jobs
-- New jobs, as a list of [number, id, work], that are alike in everything else.
INSERT INTO hw_jobs (number, id, work, database, queue_id, lane, state, priority, run_at, type, attempts_max, waits, depends,
                     batch, unique_key, created_at, changed_at)
SELECT value ->> 0, value ->> 1, value ->> 2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14 FROM json_each(?1);

-- name: jobs_by_id
-- Jobs that are known by these ids.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE database = ? AND id IN (SELECT value FROM json_each(?));

-- name: jobs_by_number
-- Jobs with these numbers.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE number IN (SELECT value FROM json_each(?));

-- name: jobs_held_of
-- Those of these jobs that a worker holds.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE number IN (SELECT value FROM json_each(?)) AND worker = ? AND state = 'processing';

-- name: jobs_held
-- All jobs that a worker holds.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE worker = ? AND state = 'processing';

-- name: jobs_due
-- Jobs of a queue whose time has come.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE queue_id = ? AND state IN ('scheduled', 'failed') AND run_at <= ? ORDER BY run_at LIMIT ?;

-- name: jobs_finished_before
-- Jobs of a queue that ended in this state before a time, but for those whose unique key is still kept for them, and those
-- whose end a job goes by that may still run.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE queue_id = ?1 AND state = ?2 AND state IN ('completed', 'dead', 'cancelled')
  AND finished_at <= ?3 AND (?4 = '' OR type = ?4)
  AND (unique_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM hw_job_unique u
    WHERE u.database = hw_jobs.database AND u.key = hw_jobs.unique_key AND u.job = hw_jobs.number AND u.until > ?6))
  AND NOT EXISTS (
    SELECT 1 FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
    WHERE d.needs = hw_jobs.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled'))
ORDER BY finished_at LIMIT ?5;

-- name: jobs_needed_before
-- Jobs of a queue that ended in this state before a time, and whose end a job goes by that may still run.
SELECT id FROM hw_jobs WHERE queue_id = ?1 AND state = ?2 AND state IN ('completed', 'dead', 'cancelled')
  AND finished_at <= ?3 AND (?4 = '' OR type = ?4)
  AND EXISTS (
    SELECT 1 FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
    WHERE d.needs = hw_jobs.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled'))
ORDER BY finished_at LIMIT ?5;

-- name: ready_heads
-- The jobs of a lane that come next.
SELECT -priority, number, type FROM hw_jobs WHERE queue_id = ? AND lane = ? AND state = 'pending'
ORDER BY priority DESC, number LIMIT ?;

-- name: lease_jobs
-- These jobs belong to a worker now. The attempt counts from here on, and the token rises.
UPDATE hw_jobs SET state = 'processing', worker = ?1, token = token + 1, attempts = attempts + 1, started_at = ?2,
    changed_at = ?2, progress = NULL
WHERE number IN (SELECT value FROM json_each(?3))
RETURNING number, id, queue_id, type, token, attempts, attempts_max, work, depends, coalesce(error, '');

-- name: make_pending
-- These jobs may run now.
UPDATE hw_jobs SET state = 'pending', changed_at = ?1 WHERE number IN (SELECT value FROM json_each(?2));

-- name: move_job
-- A job goes from one state to another.
UPDATE hw_jobs SET state = ?1, attempts = ?2, run_at = ?3, worker = NULL, cancelling = 0, changed_at = ?4, finished_at = ?5,
    error = CASE ?1 WHEN 'completed' THEN NULL ELSE coalesce(?6, error) END, result = ?7, expires_at = ?8,
    progress = coalesce(?9, progress)
WHERE number = ?10;

-- name: complete_jobs
-- These jobs are done and left no result.
UPDATE hw_jobs SET state = 'completed', worker = NULL, cancelling = 0, changed_at = ?1, finished_at = ?1, error = NULL
WHERE number IN (SELECT value FROM json_each(?2));

-- name: ask_to_cancel
-- The worker of these jobs is to end them.
UPDATE hw_jobs SET cancelling = 1, changed_at = ?1 WHERE number IN (SELECT value FROM json_each(?2));

-- name: jobs_cancelling
-- Jobs that a worker is to end.
SELECT number FROM hw_jobs WHERE worker = ? AND state = 'processing' AND cancelling = 1;

-- name: set_progress
-- How far a job is.
UPDATE hw_jobs SET progress = ?, changed_at = ? WHERE number = ?;

-- name: put_attempt
-- What is known of an attempt, the last word wins.
INSERT INTO hw_job_attempts (job, attempt, token, worker, started_at, finished_at, outcome, error, exit_code,
                             duration_seconds, memory_bytes, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job, token) DO UPDATE SET finished_at = excluded.finished_at, outcome = excluded.outcome,
    error = excluded.error, exit_code = excluded.exit_code, duration_seconds = excluded.duration_seconds,
    memory_bytes = excluded.memory_bytes,
    output = CASE WHEN excluded.output = '' THEN output ELSE excluded.output END;

-- name: drop_jobs
-- Forget jobs.
DELETE FROM hw_jobs WHERE number IN (SELECT value FROM json_each(?));

-- name: drop_job_attempts
-- Forget what is known of their attempts.
DELETE FROM hw_job_attempts WHERE job IN (SELECT value FROM json_each(?));

-- name: drop_job_needs
-- Forget what they depended on.
DELETE FROM hw_job_dependencies WHERE job IN (SELECT value FROM json_each(?));

-- name: drop_job_dependents
-- Forget what depended on them.
DELETE FROM hw_job_dependencies WHERE needs IN (SELECT value FROM json_each(?));

-- name: expire_results
-- Drop results whose time is over, but for those that a job is to get which may still run.
UPDATE hw_jobs SET result = NULL, expires_at = NULL
WHERE number IN (
  SELECT n.number FROM hw_jobs n WHERE n.expires_at <= ?
    AND NOT EXISTS (
      SELECT 1 FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
      WHERE d.needs = n.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled'))
  ORDER BY n.expires_at LIMIT ?) RETURNING id;

-- name: add_dependency
-- A job needs another.
INSERT OR IGNORE INTO hw_job_dependencies (needs, job, settled) VALUES (?, ?, ?);

-- name: open_dependents
-- Who still waits for these jobs, and whether their end is enough.
SELECT needs, job, settled FROM hw_job_dependencies WHERE needs IN (SELECT value FROM json_each(?)) AND met = 0;

-- name: needed_by
-- Jobs whose end others go by that may still run, with each of those.
SELECT d.needs, d.job, j.id FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
WHERE d.needs IN (SELECT value FROM json_each(?)) AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled');

-- name: orphaned_jobs
-- Those of these jobs of which something that they depend on was dropped.
SELECT number FROM hw_jobs WHERE number IN (SELECT value FROM json_each(?))
  AND depends > (SELECT count(*) FROM hw_job_dependencies d WHERE d.job = hw_jobs.number);

-- name: cancelled_needs
-- Those of these jobs that still need one which was cancelled to complete, with each of those.
SELECT d.job, d.needs FROM hw_job_dependencies d JOIN hw_jobs n ON n.number = d.needs
WHERE d.job IN (SELECT value FROM json_each(?)) AND d.met = 0 AND d.settled = 0 AND n.state = 'cancelled';

-- name: clear_errors
-- These jobs begin anew: what went wrong before is told by their attempts.
UPDATE hw_jobs SET error = NULL WHERE number IN (SELECT value FROM json_each(?));

-- name: meet_dependency
-- This wait is over.
UPDATE hw_job_dependencies SET met = 1 WHERE needs = ? AND job = ?;

-- name: move_dependents
-- Whoever waits for a job waits for another one instead.
UPDATE hw_job_dependencies SET needs = ? WHERE needs = ? AND met = 0;

-- name: lower_waits
-- A job waits for fewer others.
UPDATE hw_jobs SET waits = waits - ?, changed_at = ? WHERE number = ?;

-- name: dependency_results
-- What the jobs came to that a job depended on.
SELECT n.id, coalesce(n.result, 'null') FROM hw_job_dependencies d JOIN hw_jobs n ON n.number = d.needs WHERE d.job = ?;

-- name: find_unique
-- The job that holds a unique key.
SELECT u.job, u.until, j.id, j.state FROM hw_job_unique u LEFT JOIN hw_jobs j ON j.number = u.job
WHERE u.database = ? AND u.key = ?;

-- name: put_unique
-- A job holds a unique key from now on.
INSERT INTO hw_job_unique (database, key, job, until) VALUES (?, ?, ?, ?)
ON CONFLICT (database, key) DO UPDATE SET job = excluded.job, until = excluded.until;

-- name: unique_keys_of
-- The unique keys that these jobs were added with.
SELECT number, unique_key FROM hw_jobs WHERE number IN (SELECT value FROM json_each(?)) AND unique_key IS NOT NULL;

-- name: drop_unique
-- Free the unique keys of jobs that are forgotten.
DELETE FROM hw_job_unique WHERE job IN (SELECT value FROM json_each(?));

-- name: count_jobs
-- Jobs came to a state or left it.
INSERT INTO hw_job_counts (queue_id, state, count) VALUES (?, ?, ?)
ON CONFLICT (queue_id, state) DO UPDATE SET count = count + excluded.count;

-- name: count_minute
-- What was done in this minute.
INSERT INTO hw_job_minutes (queue_id, minute, enqueued, completed, failed, dead, run_micros) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue_id, minute) DO UPDATE SET enqueued = enqueued + excluded.enqueued,
    completed = completed + excluded.completed, failed = failed + excluded.failed, dead = dead + excluded.dead,
    run_micros = run_micros + excluded.run_micros;

-- name: drop_minutes
-- Forget what was counted long ago.
DELETE FROM hw_job_minutes WHERE minute < ?;

-- name: find_worker
-- A worker's lease.
SELECT lease_until, stopping FROM hw_workers WHERE id = ? AND database = ?;

-- name: count_workers
-- How many workers a database has.
SELECT count(*) FROM hw_workers WHERE database = ?1;

-- name: put_worker
-- A worker's lease, new or renewed.
INSERT INTO hw_workers (id, database, started_at, seen_at, lease_until, boot, steady_until) VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lease_until = excluded.lease_until, boot = excluded.boot,
    steady_until = excluded.steady_until;

-- name: describe_worker
-- Who a worker is.
UPDATE hw_workers SET about = ? WHERE id = ?;

-- name: lost_workers
-- Workers whose lease ran out by the time of day.
SELECT id, database, boot, steady_until FROM hw_workers WHERE lease_until <= ?;

-- name: move_lease
-- The time of day was set, and the lease goes on.
UPDATE hw_workers SET lease_until = ?1 WHERE id = ?2;

-- name: drop_worker
-- A worker is gone.
DELETE FROM hw_workers WHERE id = ? AND database = ?;

-- name: stop_workers
-- Ask all workers of a database to stop.
UPDATE hw_workers SET stopping = 1 WHERE database = ? RETURNING id;

-- name: stop_worker
-- Ask one worker to stop.
UPDATE hw_workers SET stopping = 1 WHERE database = ? AND id = ? RETURNING id;

-- name: jobs_outlook
-- When the next worker's lease ends, when the next schedule is due, and the last queue that was made.
SELECT (SELECT min(lease_until) FROM hw_workers),
       (SELECT min(next_at) FROM hw_job_schedules WHERE next_at IS NOT NULL),
       (SELECT coalesce(max(id), 0) FROM hw_job_queues);

-- name: queue_outlook
-- Whether a job without limits may run in a queue, when the next one comes due, and when a lane is worth a look.
SELECT EXISTS (SELECT 1 FROM hw_jobs WHERE queue_id = ?1 AND lane = 0 AND state = 'pending'),
       (SELECT min(run_at) FROM hw_jobs WHERE queue_id = ?1 AND state IN ('scheduled', 'failed')),
       (SELECT min(ready_at) FROM hw_job_lanes WHERE queue_id = ?1 AND ready_at IS NOT NULL
          AND (functions = 0 OR ?2 IS NULL OR type IN (SELECT value FROM json_each(?2))));

-- name: take_delays_back
-- The clock was set back to ?1 by ?2: jobs wait no longer than they were to. A time that was given stays what it is.
UPDATE hw_jobs SET run_at = max(?1, run_at - ?2)
WHERE state IN ('scheduled', 'failed', 'waiting') AND run_at > ?1 AND run_at IS NOT work ->> '$.run_at';

-- name: take_workers_back
-- The same for the leases of workers.
UPDATE hw_workers SET lease_until = lease_until - ?2, seen_at = min(seen_at, ?1) WHERE lease_until > ?1;

-- name: take_lanes_back
-- The same for the limits of types and keys.
UPDATE hw_job_lanes SET free_at = CASE WHEN free_at > ?1 THEN max(?1, free_at - ?2) ELSE free_at END,
    ready_at = CASE WHEN ready_at > ?1 THEN max(?1, ready_at - ?2) ELSE ready_at END
WHERE free_at > ?1 OR ready_at > ?1;
