-- name: put_schedule
-- A schedule, new or changed.
INSERT INTO hw_job_schedules (database, name, cron, every_seconds, timezone, job, created_at, next_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (database, name) DO UPDATE SET cron = excluded.cron, every_seconds = excluded.every_seconds,
    timezone = excluded.timezone, job = excluded.job, next_at = excluded.next_at;

-- name: get_schedule
-- One schedule.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules
WHERE database = $1 AND name = $2;

-- name: due_schedules
-- Schedules whose time has come.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules
WHERE next_at <= $1 ORDER BY next_at, database, name;

-- name: armed_schedules
-- Schedules whose time comes after this one.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules
WHERE next_at > $1 ORDER BY next_at, database, name;

-- name: rearm_schedule
-- Another next time for a schedule.
UPDATE hw_job_schedules SET next_at = $1 WHERE database = $2 AND name = $3;

-- name: next_schedule
-- When the next schedule is due.
SELECT min(next_at) FROM hw_job_schedules WHERE next_at IS NOT NULL;

-- name: schedule_fired
-- A schedule has enqueued a job; when it does so again.
UPDATE hw_job_schedules SET next_at = $1, last_at = $2, last_id = $3 WHERE database = $4 AND name = $5;

-- name: schedule_ran
-- Somebody had a schedule enqueue its job beside its times.
UPDATE hw_job_schedules SET last_at = $1, last_id = $2 WHERE database = $3 AND name = $4;

-- name: pause_schedule
-- A schedule that rests has no next time.
UPDATE hw_job_schedules SET paused = $1, next_at = $2 WHERE database = $3 AND name = $4;

-- name: drop_schedule
-- Remove a schedule.
DELETE FROM hw_job_schedules WHERE database = $1 AND name = $2;

-- name: schedules
-- The schedules of a database.
SELECT name, cron, every_seconds, timezone, job, paused, created_at, next_at, last_at, last_id FROM hw_job_schedules
WHERE database = $1 ORDER BY name;
