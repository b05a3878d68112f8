-- name: put_schedule
-- A schedule, new or changed.
INSERT INTO hw_job_schedules (database, name, cron, every_seconds, timezone, job, created_at, next_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (database, name) DO UPDATE SET cron = excluded.cron, every_seconds = excluded.every_seconds,
    timezone = excluded.timezone, job = excluded.job, next_at = excluded.next_at;

-- name: get_schedule
-- One schedule.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules
WHERE database = ? AND name = ?;

-- name: due_schedules
-- Schedules whose time has come.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules
WHERE next_at <= ? ORDER BY next_at;

-- name: armed_schedules
-- Schedules whose time comes after this one.
SELECT database, name, cron, every_seconds, timezone, job, next_at, created_at FROM hw_job_schedules WHERE next_at > ?;

-- name: rearm_schedule
-- Another next time for a schedule.
UPDATE hw_job_schedules SET next_at = ? WHERE database = ? AND name = ?;

-- name: next_schedule
-- When the next schedule is due.
SELECT min(next_at) FROM hw_job_schedules WHERE next_at IS NOT NULL;

-- name: schedule_fired
-- A schedule has enqueued a job; when it does so again.
UPDATE hw_job_schedules SET next_at = ?, last_at = ?, last_id = ? WHERE database = ? AND name = ?;

-- name: schedule_ran
-- Somebody had a schedule enqueue its job beside its times.
UPDATE hw_job_schedules SET last_at = ?, last_id = ? WHERE database = ? AND name = ?;

-- name: pause_schedule
-- A schedule that rests has no next time.
UPDATE hw_job_schedules SET paused = ?, next_at = ? WHERE database = ? AND name = ?;

-- name: drop_schedule
-- Remove a schedule.
DELETE FROM hw_job_schedules WHERE database = ? AND name = ?;

-- name: schedules
-- The schedules of a database.
SELECT name, cron, every_seconds, timezone, job, paused, created_at, next_at, last_at, last_id FROM hw_job_schedules
WHERE database = ? ORDER BY name;
