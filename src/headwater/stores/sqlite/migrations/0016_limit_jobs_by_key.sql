-- replaces view: jobs
-- What holds for each limit key of a type stands with the lane of the type; lanes of limit keys take turns.
ALTER TABLE hw_job_lanes ADD COLUMN each_rate REAL NOT NULL DEFAULT 0;
ALTER TABLE hw_job_lanes ADD COLUMN each_seconds REAL NOT NULL DEFAULT 1;
ALTER TABLE hw_job_lanes ADD COLUMN each_burst INTEGER NOT NULL DEFAULT 1;
ALTER TABLE hw_job_lanes ADD COLUMN each_concurrency INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hw_job_lanes ADD COLUMN takes_turns INTEGER NOT NULL DEFAULT 0;

-- Jobs under the names that people who know other queues expect; the command of one that is a list of words, too.
CREATE VIEW IF NOT EXISTS jobs AS
SELECT j.database, j.id, q.name AS queue,
       coalesce(j.work ->> '$.command',
                (SELECT group_concat(CASE WHEN value = '' OR value GLOB '*[^A-Za-z0-9_./:=@%+,-]*'
                                          THEN '''' || replace(value, '''', '''\''''') || '''' ELSE value END, ' ')
                 FROM json_each(j.work, '$.argv')),
                j.type) AS command,
       j.state, j.priority, j.attempts, j.attempts_max - 1 AS max_retries,
       strftime('%Y-%m-%d %H:%M:%f', j.created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', j.changed_at / 1e6, 'unixepoch') AS updated_at,
       j.worker AS locked_by,
       CASE WHEN j.worker IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', j.started_at / 1e6, 'unixepoch') END AS locked_at,
       strftime('%Y-%m-%d %H:%M:%f', j.run_at / 1e6, 'unixepoch') AS run_at,
       coalesce(j.work ->> '$.timeout_seconds', 0) AS timeout,
       (SELECT a.output FROM hw_job_attempts a WHERE a.job = j.number ORDER BY a.token DESC LIMIT 1) AS output,
       j.error, j.type
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id;
