-- Jobs are rows, because they finish out of order. Every index is partial: a change of state touches the place that the
-- job leaves and the one it goes to, and what waits costs nothing to those that run.

CREATE TABLE hw_job_queues (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    database TEXT NOT NULL,
    name     TEXT NOT NULL,
    paused   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (database, name)
) STRICT;

-- Settings by name; queue '' is the whole database.
CREATE TABLE hw_job_config (
    database TEXT NOT NULL,
    queue    TEXT NOT NULL,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (database, queue, name)
) STRICT, WITHOUT ROWID;

-- lane 0: no limit holds for the job. Numbers never come back, or an old token could fit a new job: dropping jobs writes
-- down how far they went, because AUTOINCREMENT would write that with every single one.
CREATE TABLE hw_jobs (
    number       INTEGER PRIMARY KEY,
    database     TEXT NOT NULL,
    id           TEXT NOT NULL,
    queue_id     INTEGER NOT NULL,
    lane         INTEGER NOT NULL DEFAULT 0,
    state        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    type         TEXT NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    attempts_max INTEGER NOT NULL,
    token        INTEGER NOT NULL DEFAULT 0,
    waits        INTEGER NOT NULL DEFAULT 0,
    depends      INTEGER NOT NULL DEFAULT 0,
    cancelling   INTEGER NOT NULL DEFAULT 0,
    worker       TEXT,
    batch        TEXT,
    unique_key   TEXT,
    created_at   INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    started_at   INTEGER,
    finished_at  INTEGER,
    expires_at   INTEGER,
    progress     TEXT,
    error        TEXT,
    result       TEXT,
    work         TEXT NOT NULL,
    UNIQUE (database, id)
) STRICT;

CREATE INDEX hw_jobs_ready ON hw_jobs (queue_id, lane, priority DESC, number) WHERE state = 'pending';
CREATE INDEX hw_jobs_due ON hw_jobs (queue_id, run_at) WHERE state IN ('scheduled', 'failed');
CREATE INDEX hw_jobs_waiting ON hw_jobs (queue_id, number) WHERE state = 'waiting';
CREATE INDEX hw_jobs_held ON hw_jobs (worker) WHERE state = 'processing';
CREATE INDEX hw_jobs_finished ON hw_jobs (queue_id, state, finished_at) WHERE state IN ('completed', 'dead', 'cancelled');
CREATE INDEX hw_jobs_expiring ON hw_jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX hw_jobs_by_batch ON hw_jobs (database, batch) WHERE batch IS NOT NULL;

-- An attempt that has something to say: it failed, or it printed.
CREATE TABLE hw_job_attempts (
    job              INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    token            INTEGER NOT NULL,
    worker           TEXT NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER,
    outcome          TEXT NOT NULL,
    error            TEXT NOT NULL DEFAULT '',
    exit_code        INTEGER,
    duration_seconds REAL,
    memory_bytes     INTEGER,
    output           TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job, token)
) STRICT, WITHOUT ROWID;

-- settled: the end of `needs` is enough, whatever it came to. met: it has come, and is not counted a second time.
CREATE TABLE hw_job_dependencies (
    needs   INTEGER NOT NULL,
    job     INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    met     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (needs, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX hw_job_dependencies_by_job ON hw_job_dependencies (job);

CREATE TABLE hw_job_unique (
    database TEXT NOT NULL,
    key      TEXT NOT NULL,
    job      INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    PRIMARY KEY (database, key)
) STRICT, WITHOUT ROWID;

-- How many jobs there are, by queue and state: counted with every commit, so that asking costs nothing.
CREATE TABLE hw_job_counts (
    queue_id INTEGER NOT NULL,
    state    TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (queue_id, state)
) STRICT, WITHOUT ROWID;

-- What was done in each minute: for rates and graphs.
CREATE TABLE hw_job_minutes (
    queue_id    INTEGER NOT NULL,
    minute      INTEGER NOT NULL,
    enqueued    INTEGER NOT NULL DEFAULT 0,
    completed   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    dead        INTEGER NOT NULL DEFAULT 0,
    run_micros  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue_id, minute)
) STRICT, WITHOUT ROWID;

-- A worker's lease holds for every job that it has claimed: one row to renew, however many they are.
CREATE TABLE hw_workers (
    id          TEXT PRIMARY KEY,
    database    TEXT NOT NULL,
    about       TEXT NOT NULL DEFAULT '{}',
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    stopping    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX hw_workers_by_lease ON hw_workers (lease_until);

-- Where limits hold: a type of job in a queue (key ''), or one concurrency key, perhaps under the limit of its type.
-- ready_at: when to look at the lane again; null when nothing waits there, or when only an end of a job can help.
CREATE TABLE hw_job_lanes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id    INTEGER NOT NULL,
    type        TEXT NOT NULL,
    key         TEXT NOT NULL,
    parent      INTEGER NOT NULL DEFAULT 0,
    concurrency INTEGER NOT NULL DEFAULT 0,
    rate        REAL NOT NULL DEFAULT 0,
    seconds     REAL NOT NULL DEFAULT 1,
    burst       INTEGER NOT NULL DEFAULT 1,
    free_at     INTEGER NOT NULL DEFAULT 0,
    running     INTEGER NOT NULL DEFAULT 0,
    blocked     INTEGER NOT NULL DEFAULT 0,
    ready_at    INTEGER,
    UNIQUE (queue_id, type, key)
) STRICT;

CREATE INDEX hw_job_lanes_ready ON hw_job_lanes (queue_id, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX hw_job_lanes_blocked ON hw_job_lanes (parent) WHERE blocked = 1;

CREATE TABLE hw_job_schedules (
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    cron       TEXT NOT NULL DEFAULT '',
    every_seconds REAL NOT NULL DEFAULT 0,
    timezone   TEXT NOT NULL DEFAULT 'UTC',
    job        TEXT NOT NULL,
    paused     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    next_at    INTEGER,
    last_at    INTEGER,
    last_id    TEXT,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX hw_job_schedules_due ON hw_job_schedules (next_at) WHERE next_at IS NOT NULL;

-- Jobs under the names that people who know other queues expect.
CREATE VIEW IF NOT EXISTS jobs AS
SELECT j.database, j.id, q.name AS queue, coalesce(j.work ->> '$.command', j.type) AS command, j.state, j.priority, j.attempts,
       j.attempts_max - 1 AS max_retries,
       strftime('%Y-%m-%d %H:%M:%f', j.created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', j.changed_at / 1e6, 'unixepoch') AS updated_at,
       j.worker AS locked_by,
       CASE WHEN j.worker IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', j.started_at / 1e6, 'unixepoch') END AS locked_at,
       strftime('%Y-%m-%d %H:%M:%f', j.run_at / 1e6, 'unixepoch') AS run_at,
       coalesce(j.work ->> '$.timeout_seconds', 0) AS timeout,
       (SELECT a.output FROM hw_job_attempts a WHERE a.job = j.number ORDER BY a.token DESC LIMIT 1) AS output,
       j.error
FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id;
