-- name: find_job_queue
-- A job queue by its name.
SELECT id, database, name, paused FROM hw_job_queues WHERE database = $1 AND name = $2;

-- name: find_job_queues
-- The job queues of a database.
SELECT id, database, name, paused FROM hw_job_queues WHERE database = $1 ORDER BY id;

-- name: all_job_queues
-- The job queues of every database.
SELECT id, database, name, paused FROM hw_job_queues ORDER BY id;

-- name: add_job_queue
-- A new job queue.
INSERT INTO hw_job_queues (database, name) VALUES ($1, $2);

-- name: pause_job_queue
-- Hand out its jobs, or do not.
UPDATE hw_job_queues SET paused = $1 WHERE id = $2;

-- name: job_config
-- The settings of a database and of its queues.
SELECT queue, name, value FROM hw_job_config WHERE database = $1 ORDER BY queue, name;

-- name: set_job_config
-- Remember one setting.
INSERT INTO hw_job_config (database, queue, name, value) VALUES ($1, $2, $3, $4)
ON CONFLICT (database, queue, name) DO UPDATE SET value = excluded.value;

-- name: drop_job_config
-- Forget one setting.
DELETE FROM hw_job_config WHERE database = $1 AND queue = $2 AND name = $3;

-- name: last_job_number
-- The highest number ever given to a job.
SELECT greatest(coalesce((SELECT max(number) FROM hw_jobs), 0),
                coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'last_job'), 0));

-- name: add_jobs
-- New jobs, as a list of [number, id, work], that are alike in everything else.
INSERT INTO hw_jobs (number, id, work, database, queue_id, lane, state, priority, run_at, type, attempts_max, waits, depends,
                     batch, unique_key, created_at, changed_at)
SELECT (value ->> 0)::int8, value ->> 1, value ->> 2, $2::text, $3::int8, $4::int8, $5::text, $6::int8, $7::int8, $8::text,
       $9::int8, $10::int8, $11::int8, $12::text, $13::text, $14::int8, $14::int8
FROM json_array_elements($1::json);

-- name: jobs_by_id
-- Jobs that are known by these ids.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE database = $1 AND id = ANY (hw_words($2)) ORDER BY id;

-- name: jobs_by_number
-- Jobs with these numbers.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE number = ANY (hw_numbers($1)) ORDER BY number;

-- name: jobs_held_of
-- Those of these jobs that a worker holds. Found by their numbers first: by its worker each is one among all that the
-- worker has had, and the list would be read once for each of those.
WITH asked AS MATERIALIZED (
    SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
    FROM hw_jobs WHERE number = ANY (hw_numbers($1)))
SELECT * FROM asked WHERE worker = $2 AND state = 'processing' ORDER BY number;

-- name: jobs_held
-- All jobs that a worker holds.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE worker = $1 AND state = 'processing' ORDER BY number;

-- name: jobs_due
-- Jobs of a queue whose time has come.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE queue_id = $1 AND state IN ('scheduled', 'failed') AND run_at <= $2 ORDER BY run_at, number LIMIT $3;

-- name: jobs_finished_before
-- Jobs of a queue that ended in this state before a time, but for those whose unique key is still kept for them, and those
-- whose end a job goes by that may still run. A value and not EXISTS: that could become a join over all jobs.
SELECT number, id, queue_id, lane, state, type, attempts, attempts_max, token, worker, started_at, run_at, waits, work
FROM hw_jobs WHERE queue_id = $1 AND state = $2 AND state IN ('completed', 'dead', 'cancelled')
  AND finished_at <= $3 AND ($4 = '' OR type = $4)
  AND (unique_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM hw_job_unique u
    WHERE u.database = hw_jobs.database AND u.key = hw_jobs.unique_key AND u.job = hw_jobs.number AND u.until > $6))
  AND (
    SELECT d.job FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
    WHERE d.needs = hw_jobs.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled') LIMIT 1) IS NULL
ORDER BY finished_at, number LIMIT $5;

-- name: jobs_needed_before
-- Jobs of a queue that ended in this state before a time, and whose end a job goes by that may still run.
SELECT id FROM hw_jobs WHERE queue_id = $1 AND state = $2 AND state IN ('completed', 'dead', 'cancelled')
  AND finished_at <= $3 AND ($4 = '' OR type = $4)
  AND (
    SELECT d.job FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
    WHERE d.needs = hw_jobs.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled') LIMIT 1) IS NOT NULL
ORDER BY finished_at, number LIMIT $5;

-- name: ready_heads
-- The jobs of a lane that come next: of the priority of the lane's floor those from the floor on, then those of less.
WITH floor AS MATERIALIZED (
    (SELECT priority, number FROM hw_job_floors WHERE queue_id = $1 AND lane = $2 ORDER BY version DESC LIMIT 1)
    UNION ALL SELECT 9223372036854775807, 0 LIMIT 1)
(SELECT -priority AS before, number, type FROM hw_jobs WHERE queue_id = $1 AND lane = $2 AND state = 'pending'
     AND priority = (SELECT priority FROM floor) AND number >= (SELECT number FROM floor) ORDER BY number LIMIT $3)
UNION ALL
(SELECT -priority, number, type FROM hw_jobs WHERE queue_id = $1 AND lane = $2 AND state = 'pending'
     AND priority < (SELECT priority FROM floor) ORDER BY priority DESC, number LIMIT $3)
ORDER BY before, number LIMIT $3;

-- name: raise_job_floor
-- No job of a lane is pending before this one.
CALL hw_raise_job_floor($1, $2, $3, $4);

-- name: lease_jobs
-- These jobs belong to a worker now. The attempt counts from here on, and the token rises.
UPDATE hw_jobs SET state = 'processing', worker = $1, token = token + 1, attempts = attempts + 1, started_at = $2,
    changed_at = $2, progress = NULL
WHERE number = ANY (hw_numbers($3))
RETURNING number, id, queue_id, type, token, attempts, attempts_max, work, depends, coalesce(error, '');

-- name: make_pending
-- These jobs may run now.
UPDATE hw_jobs SET state = 'pending', changed_at = $1 WHERE number = ANY (hw_numbers($2));

-- name: move_job
-- A job goes from one state to another.
UPDATE hw_jobs SET state = $1, attempts = $2, run_at = $3, worker = NULL, cancelling = 0, changed_at = $4, finished_at = $5,
    error = CASE $1 WHEN 'completed' THEN NULL ELSE coalesce($6, error) END, result = $7, expires_at = $8,
    progress = coalesce($9, progress)
WHERE number = $10;

-- name: complete_jobs
-- These jobs are done and left no result.
UPDATE hw_jobs SET state = 'completed', worker = NULL, cancelling = 0, changed_at = $1, finished_at = $1, error = NULL
WHERE number = ANY (hw_numbers($2));

-- name: ask_to_cancel
-- The worker of these jobs is to end them.
UPDATE hw_jobs SET cancelling = 1, changed_at = $1 WHERE number = ANY (hw_numbers($2));

-- name: jobs_cancelling
-- Jobs that a worker is to end.
SELECT number FROM hw_jobs WHERE worker = $1 AND state = 'processing' AND cancelling = 1 ORDER BY number;

-- name: set_progress
-- How far a job is.
UPDATE hw_jobs SET progress = $1, changed_at = $2 WHERE number = $3;

-- name: put_attempt
-- What is known of an attempt, the last word wins.
INSERT INTO hw_job_attempts (job, attempt, token, worker, started_at, finished_at, outcome, error, exit_code,
                             duration_seconds, memory_bytes, output)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (job, token) DO UPDATE SET finished_at = excluded.finished_at, outcome = excluded.outcome,
    error = excluded.error, exit_code = excluded.exit_code, duration_seconds = excluded.duration_seconds,
    memory_bytes = excluded.memory_bytes,
    output = CASE WHEN excluded.output = '' THEN hw_job_attempts.output ELSE excluded.output END;

-- name: drop_jobs
-- Forget jobs.
DELETE FROM hw_jobs WHERE number = ANY (hw_numbers($1));

-- name: drop_job_attempts
-- Forget what is known of their attempts.
DELETE FROM hw_job_attempts WHERE job = ANY (hw_numbers($1));

-- name: drop_job_needs
-- Forget what they depended on.
DELETE FROM hw_job_dependencies WHERE job = ANY (hw_numbers($1));

-- name: drop_job_dependents
-- Forget what depended on them.
DELETE FROM hw_job_dependencies WHERE needs = ANY (hw_numbers($1));

-- name: expire_results
-- Drop results whose time is over, but for those that a job is to get which may still run.
UPDATE hw_jobs SET result = NULL, expires_at = NULL
WHERE number IN (
  SELECT n.number FROM hw_jobs n WHERE n.expires_at <= $1
    AND (
      SELECT d.job FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
      WHERE d.needs = n.number AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled') LIMIT 1) IS NULL
  ORDER BY n.expires_at LIMIT $2) RETURNING id;

-- name: add_dependency
-- A job needs another.
INSERT INTO hw_job_dependencies (needs, job, settled) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- name: open_dependents
-- Who still waits for these jobs, and whether their end is enough.
SELECT needs, job, settled FROM hw_job_dependencies WHERE needs = ANY (hw_numbers($1)) AND met = 0 ORDER BY needs, job;

-- name: needed_by
-- Jobs whose end others go by that may still run, with each of those.
SELECT d.needs, d.job, j.id FROM hw_job_dependencies d JOIN hw_jobs j ON j.number = d.job
WHERE d.needs = ANY (hw_numbers($1)) AND d.met = 1 AND j.state NOT IN ('completed', 'cancelled') ORDER BY d.needs, d.job;

-- name: orphaned_jobs
-- Those of these jobs of which something that they depend on was dropped.
SELECT number FROM hw_jobs WHERE number = ANY (hw_numbers($1))
  AND depends > (SELECT count(*) FROM hw_job_dependencies d WHERE d.job = hw_jobs.number) ORDER BY number;

-- name: cancelled_needs
-- Those of these jobs that still need one which was cancelled to complete, with each of those.
SELECT d.job, d.needs FROM hw_job_dependencies d JOIN hw_jobs n ON n.number = d.needs
WHERE d.job = ANY (hw_numbers($1)) AND d.met = 0 AND d.settled = 0 AND n.state = 'cancelled' ORDER BY d.job, d.needs;

-- name: clear_errors
-- These jobs begin anew: what went wrong before is told by their attempts.
UPDATE hw_jobs SET error = NULL WHERE number = ANY (hw_numbers($1));

-- name: meet_dependency
-- This wait is over.
UPDATE hw_job_dependencies SET met = 1 WHERE needs = $1 AND job = $2;

-- name: move_dependents
-- Whoever waits for a job waits for another one instead.
UPDATE hw_job_dependencies SET needs = $1 WHERE needs = $2 AND met = 0;

-- name: lower_waits
-- A job waits for fewer others.
UPDATE hw_jobs SET waits = waits - $1, changed_at = $2 WHERE number = $3;

-- name: dependency_results
-- What the jobs came to that a job depended on.
SELECT n.id, coalesce(n.result, 'null') FROM hw_job_dependencies d JOIN hw_jobs n ON n.number = d.needs
WHERE d.job = $1 ORDER BY d.needs;

-- name: find_unique
-- The job that holds a unique key.
SELECT u.job, u.until, j.id, j.state FROM hw_job_unique u LEFT JOIN hw_jobs j ON j.number = u.job
WHERE u.database = $1 AND u.key = $2;

-- name: put_unique
-- A job holds a unique key from now on.
INSERT INTO hw_job_unique (database, key, job, until) VALUES ($1, $2, $3, $4)
ON CONFLICT (database, key) DO UPDATE SET job = excluded.job, until = excluded.until;

-- name: unique_keys_of
-- The unique keys that these jobs were added with.
SELECT number, unique_key FROM hw_jobs WHERE number = ANY (hw_numbers($1)) AND unique_key IS NOT NULL;

-- name: drop_unique
-- Free the unique keys of jobs that are forgotten.
DELETE FROM hw_job_unique WHERE job = ANY (hw_numbers($1));

-- name: count_jobs
-- Jobs came to a state or left it.
CALL hw_count_jobs($1, $2, $3);

-- name: count_minute
-- What was done in this minute.
CALL hw_count_minute($1, $2, $3, $4, $5, $6, $7);

-- name: drop_minutes
-- Forget what was counted long ago.
DELETE FROM hw_job_minute_tallies WHERE minute < $1;

-- name: find_worker
-- A worker's lease.
SELECT lease_until, stopping FROM hw_workers WHERE id = $1 AND database = $2;

-- name: count_workers
-- How many workers a database has.
SELECT count(*) FROM hw_workers WHERE database = $1;

-- name: put_worker
-- A worker's lease, new or renewed.
INSERT INTO hw_workers (id, database, started_at, seen_at, lease_until, boot, steady_until) VALUES ($1, $2, $3, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lease_until = excluded.lease_until, boot = excluded.boot,
    steady_until = excluded.steady_until;

-- name: describe_worker
-- Who a worker is.
UPDATE hw_workers SET about = $1 WHERE id = $2;

-- name: lost_workers
-- Workers whose lease ran out by the time of day.
SELECT id, database, boot, steady_until FROM hw_workers WHERE lease_until <= $1 ORDER BY lease_until, id;

-- name: move_lease
-- The time of day was set, and the lease goes on.
UPDATE hw_workers SET lease_until = $1 WHERE id = $2;

-- name: drop_worker
-- A worker is gone.
DELETE FROM hw_workers WHERE id = $1 AND database = $2;

-- name: stop_workers
-- Ask all workers of a database to stop.
UPDATE hw_workers SET stopping = 1 WHERE database = $1 RETURNING id;

-- name: stop_worker
-- Ask one worker to stop.
UPDATE hw_workers SET stopping = 1 WHERE database = $1 AND id = $2 RETURNING id;

-- name: jobs_outlook
-- When the next worker's lease ends, when the next schedule is due, and the last queue that was made.
SELECT (SELECT min(lease_until) FROM hw_workers),
       (SELECT min(next_at) FROM hw_job_schedules WHERE next_at IS NOT NULL),
       (SELECT coalesce(max(id), 0) FROM hw_job_queues);

-- name: queue_outlook
-- Whether a job without limits may run in a queue, when the next one comes due, and when a lane is worth a look.
WITH floor AS MATERIALIZED (
    (SELECT priority, number FROM hw_job_floors WHERE queue_id = $1 AND lane = 0 ORDER BY version DESC LIMIT 1)
    UNION ALL SELECT 9223372036854775807, 0 LIMIT 1)
SELECT EXISTS (SELECT 1 FROM hw_jobs WHERE queue_id = $1 AND lane = 0 AND state = 'pending'
                   AND priority = (SELECT priority FROM floor) AND number >= (SELECT number FROM floor))
    OR EXISTS (SELECT 1 FROM hw_jobs WHERE queue_id = $1 AND lane = 0 AND state = 'pending'
                   AND priority < (SELECT priority FROM floor)),
       (SELECT min(run_at) FROM hw_jobs WHERE queue_id = $1 AND state IN ('scheduled', 'failed')),
       (SELECT min(ready_at) FROM hw_job_lanes WHERE queue_id = $1 AND ready_at IS NOT NULL
          AND (functions = 0 OR $2::text IS NULL OR type = ANY (hw_words($2))));

-- name: take_delays_back
-- The clock was set back to $1 by $2: jobs wait no longer than they were to. A time that was given stays what it is. A zero
-- character, which JSON may have, would fail here: whatever stands for it, behind a backslash or not, is JSON still.
UPDATE hw_jobs SET run_at = greatest($1, run_at - $2)
WHERE state IN ('scheduled', 'failed', 'waiting') AND run_at > $1
  AND run_at IS DISTINCT FROM (replace(work, '\u0000', '\ufffd')::json ->> 'run_at')::int8;

-- name: take_workers_back
-- The same for the leases of workers.
UPDATE hw_workers SET lease_until = lease_until - $2, seen_at = least(seen_at, $1) WHERE lease_until > $1;

-- name: take_lanes_back
-- The same for the limits of types and keys.
UPDATE hw_job_lanes SET free_at = CASE WHEN free_at > $1 THEN greatest($1, free_at - $2) ELSE free_at END,
    ready_at = CASE WHEN ready_at > $1 THEN greatest($1, ready_at - $2) ELSE ready_at END
WHERE free_at > $1 OR ready_at > $1;
