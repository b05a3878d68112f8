-- name: show_job
-- Everything about one job.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id WHERE j.database = $1 AND j.id = $2;

-- name: list_pending
-- Jobs of a queue that may run, the next first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'pending' AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.priority DESC, j.number LIMIT $3;

-- name: list_scheduled
-- Jobs of a queue that wait for a time, the next first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'scheduled'
  AND j.state IN ('scheduled', 'failed') AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.run_at, j.number LIMIT $3;

-- name: list_failed
-- Jobs of a queue that will be tried again, the next first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'failed'
  AND j.state IN ('scheduled', 'failed') AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.run_at, j.number LIMIT $3;

-- name: list_waiting
-- Jobs of a queue that wait for others.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'waiting' AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.number LIMIT $3;

-- name: list_processing
-- Jobs of a queue that run.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'processing'
  AND j.worker IN (SELECT id FROM hw_workers) AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.number LIMIT $3;

-- name: list_completed
-- Jobs of a queue that are completed, the last first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'completed'
  AND j.state IN ('completed', 'dead', 'cancelled') AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.finished_at DESC, j.number DESC LIMIT $3;

-- name: list_dead
-- Jobs of a queue that are dead, the last first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'dead'
  AND j.state IN ('completed', 'dead', 'cancelled') AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.finished_at DESC, j.number DESC LIMIT $3;

-- name: list_cancelled
-- Jobs of a queue that are cancelled, the last first.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id
WHERE j.queue_id = $1 AND j.state = 'cancelled'
  AND j.state IN ('completed', 'dead', 'cancelled') AND ($2 = '' OR j.type = $2) AND ($4 = '' OR strpos(j.error, $4) > 0)
ORDER BY j.finished_at DESC, j.number DESC LIMIT $3;

-- name: list_batch
-- The jobs of a batch.
SELECT j.number, j.id, q.name, j.type, j.state, j.work, j.progress, j.result, j.priority, j.attempts, j.attempts_max, j.token,
       j.waits, j.worker, j.batch, j.created_at, j.changed_at, j.run_at, j.started_at, j.finished_at, j.error, j.cancelling
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id WHERE j.database = $1 AND j.batch = $2 ORDER BY j.number LIMIT $3;

-- name: list_attempts
-- What is known of a job's attempts.
SELECT a.attempt, a.token, a.worker, a.started_at, a.finished_at, a.outcome, a.error, a.exit_code, a.duration_seconds,
       a.memory_bytes, a.output
FROM hw_jobs j JOIN hw_job_attempts a ON a.job = j.number WHERE j.database = $1 AND j.id = $2 ORDER BY a.token;

-- name: list_dependencies
-- The jobs that a job depends on.
SELECT n.id, n.state FROM hw_jobs j JOIN hw_job_dependencies d ON d.job = j.number JOIN hw_jobs n ON n.number = d.needs
WHERE j.database = $1 AND j.id = $2 ORDER BY n.number;

-- name: list_job_queues
-- Job queues with how many jobs are in which state.
SELECT q.name, q.paused, c.state, c.count FROM hw_job_queues q LEFT JOIN hw_job_tallies c ON c.queue_id = q.id
WHERE q.database = $1 ORDER BY q.name;

-- name: list_minutes
-- What was done in each minute.
SELECT q.name, m.minute, m.enqueued, m.completed, m.failed, m.dead, m.run_micros
FROM hw_job_queues q JOIN hw_job_minute_tallies m ON m.queue_id = q.id
WHERE q.database = $1 AND m.minute >= $2 ORDER BY m.minute, q.name;

-- name: list_workers
-- Workers with how many jobs each holds.
SELECT w.id, w.about, w.started_at, w.seen_at, w.lease_until, w.stopping,
    (SELECT count(*) FROM hw_jobs j WHERE j.worker = w.id AND j.state = 'processing')
FROM hw_workers w WHERE w.database = $1 ORDER BY w.started_at, w.id;
