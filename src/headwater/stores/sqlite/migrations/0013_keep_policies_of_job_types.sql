-- How the functions of apps and workers are declared, by type: what a job does not say, its function does.
CREATE TABLE hw_job_types (
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    policy     TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;

-- The jobs of schedules under the names that options have now; what was written only because it is the default goes.
UPDATE hw_job_schedules SET job = json_remove(
    json_set(job, '$.delay', json(job -> '$.delay_seconds'), '$.timeout', json(job -> '$.timeout_seconds'),
             '$.retries', json(job -> '$.max_retries'), '$.backoff_max', json(job -> '$.backoff_max_seconds'),
             '$.result_ttl', json(job -> '$.result_seconds')),
    '$.delay_seconds', '$.timeout_seconds', '$.max_retries', '$.backoff_max_seconds', '$.result_seconds');
UPDATE hw_job_schedules SET job = json_remove(job, '$.queue') WHERE job ->> '$.queue' = 'default';
UPDATE hw_job_schedules SET job = json_remove(job, '$.priority') WHERE job ->> '$.priority' = 0;
UPDATE hw_job_schedules SET job = json_remove(job, '$.delay') WHERE job ->> '$.delay' = 0;
UPDATE hw_job_schedules SET job = json_remove(job, '$.unique_seconds') WHERE job ->> '$.unique_seconds' = 0;
UPDATE hw_job_schedules SET job = json_remove(job, '$.unique_mode') WHERE job ->> '$.unique_mode' = 'ignore';
UPDATE hw_job_schedules SET job = json_remove(job, '$.concurrency_limit') WHERE job ->> '$.concurrency_limit' = 1;
