-- The tables of a fresh file: what the migrations up to 0026 come to, without the way there.
-- Written by `python -m tests.stores.fresh_tables`.
CREATE TABLE hw_meta (
    key   TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_queues (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    namespace  TEXT NOT NULL DEFAULT '',
    task       TEXT NOT NULL DEFAULT '',
    priority   INTEGER NOT NULL DEFAULT 0,
    options    TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    UNIQUE (database, name)
) STRICT;
CREATE INDEX hw_queues_by_namespace ON hw_queues (database, namespace, task, priority);
CREATE TABLE hw_partitions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id     INTEGER NOT NULL,
    name         TEXT NOT NULL,
    start_offset INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL, reader TEXT NOT NULL DEFAULT '', priority INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue_id, name)
) STRICT;
CREATE INDEX hw_partitions_by_queue ON hw_partitions (queue_id, id);
CREATE TABLE hw_segments (
    lsn          INTEGER PRIMARY KEY,
    partition_id INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    written_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    origin       INTEGER NOT NULL,
    codec        INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    records      ANY NOT NULL
) STRICT;
CREATE UNIQUE INDEX hw_segments_by_partition ON hw_segments (partition_id, first_offset);
CREATE TABLE hw_groups (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    name       TEXT NOT NULL,
    since_lsn  INTEGER NOT NULL DEFAULT 0,
    discovered INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL, retried INTEGER NOT NULL DEFAULT 0, buried INTEGER NOT NULL DEFAULT 0, options TEXT NOT NULL DEFAULT '{}',
    UNIQUE (queue_id, name)
) STRICT;
CREATE TABLE hw_cursors (
    group_id     INTEGER NOT NULL,
    partition_id INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    settled      TEXT,
    failed       TEXT,
    token        INTEGER NOT NULL DEFAULT 0,
    lease_until  INTEGER,
    leased_to    INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    retry_to     INTEGER NOT NULL DEFAULT 0,
    cautious     INTEGER NOT NULL DEFAULT 0,
    ready_at     INTEGER, holder TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (group_id, partition_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX hw_cursors_ready ON hw_cursors (group_id, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX hw_cursors_by_partition ON hw_cursors (partition_id);
CREATE TABLE hw_dead_letters (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id     INTEGER NOT NULL,
    partition_id INTEGER NOT NULL,
    group_name   TEXT NOT NULL,
    record_offset INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    error        TEXT NOT NULL,
    written_at   INTEGER NOT NULL,
    failed_at    INTEGER NOT NULL,
    codec        INTEGER NOT NULL,
    records      ANY NOT NULL
, checksum INTEGER) STRICT;
CREATE INDEX hw_dead_letters_by_queue ON hw_dead_letters (queue_id, id);
CREATE TABLE hw_traces (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    database       TEXT NOT NULL,
    partition_id   INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    group_name     TEXT NOT NULL,
    name           TEXT NOT NULL,
    event          TEXT NOT NULL,
    data           TEXT NOT NULL,
    noted_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX hw_traces_by_record ON hw_traces (partition_id, transaction_id);
CREATE INDEX hw_traces_by_time ON hw_traces (noted_at);
CREATE TABLE hw_applied (
    database   TEXT NOT NULL,
    key        TEXT NOT NULL,
    operation  TEXT NOT NULL,
    result     TEXT NOT NULL,
    applied_at INTEGER NOT NULL, fingerprint TEXT,
    PRIMARY KEY (database, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX hw_applied_by_time ON hw_applied (applied_at);
CREATE TABLE hw_clock_jumps (
    id INTEGER PRIMARY KEY,
    lsn INTEGER NOT NULL,
    was INTEGER NOT NULL,
    became INTEGER NOT NULL
) STRICT;
CREATE TABLE hw_access_tokens (
    id         TEXT PRIMARY KEY,
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    queues     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_switches (
    database     TEXT NOT NULL,
    name         TEXT NOT NULL,
    turned_on_at INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_stream_queries (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    database     TEXT NOT NULL,
    name         TEXT NOT NULL,
    source_queue TEXT NOT NULL,
    sink_queue   TEXT NOT NULL DEFAULT '',
    config_hash  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    UNIQUE (database, name)
) STRICT;
CREATE TABLE hw_stream_state (
    query_id     INTEGER NOT NULL,
    partition_id INTEGER NOT NULL,
    key          TEXT NOT NULL,
    value        TEXT NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (query_id, partition_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX hw_traces_by_name ON hw_traces (database, name, id);
CREATE TABLE hw_drops (
    partition_id INTEGER PRIMARY KEY,
    lsn          INTEGER NOT NULL,
    number       INTEGER NOT NULL
) STRICT;
CREATE TABLE hw_milestones (
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    note       TEXT NOT NULL,
    reached_at INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_job_queues (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    database TEXT NOT NULL,
    name     TEXT NOT NULL,
    paused   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (database, name)
) STRICT;
CREATE TABLE hw_job_config (
    database TEXT NOT NULL,
    queue    TEXT NOT NULL,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (database, queue, name)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE hw_job_counts (
    queue_id INTEGER NOT NULL,
    state    TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (queue_id, state)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE hw_workers (
    id          TEXT PRIMARY KEY,
    database    TEXT NOT NULL,
    about       TEXT NOT NULL DEFAULT '{}',
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    stopping    INTEGER NOT NULL DEFAULT 0
, boot TEXT NOT NULL DEFAULT '', steady_until INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
CREATE INDEX hw_workers_by_lease ON hw_workers (lease_until);
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
    ready_at    INTEGER, each_rate REAL NOT NULL DEFAULT 0, each_seconds REAL NOT NULL DEFAULT 1, each_burst INTEGER NOT NULL DEFAULT 1, each_concurrency INTEGER NOT NULL DEFAULT 0, takes_turns INTEGER NOT NULL DEFAULT 0, functions INTEGER NOT NULL DEFAULT 0, gate INTEGER NOT NULL DEFAULT 0,
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
CREATE TABLE hw_archived (
    queue_id    INTEGER PRIMARY KEY,
    lsn         INTEGER NOT NULL,
    archived_at INTEGER NOT NULL
) STRICT;
CREATE TABLE hw_loaded (
    partition_id INTEGER NOT NULL,
    source       TEXT NOT NULL,
    covered      TEXT NOT NULL,
    PRIMARY KEY (partition_id, source)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_rollups (
    database      TEXT NOT NULL,
    queue         TEXT NOT NULL,
    group_name    TEXT NOT NULL,
    type          TEXT NOT NULL,
    resolution    TEXT NOT NULL,
    bucket        INTEGER NOT NULL,
    pushed        INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    late          INTEGER NOT NULL,
    completed     INTEGER NOT NULL,
    latency_total INTEGER NOT NULL,
    latency_max   INTEGER NOT NULL,
    latency_bins  TEXT NOT NULL,
    lag_max       INTEGER NOT NULL,
    retried       INTEGER NOT NULL,
    buried        INTEGER NOT NULL,
    PRIMARY KEY (database, resolution, bucket, queue, group_name, type)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_rollup_state (
    database TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    state    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_job_types (
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    policy     TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_staged (
    database  TEXT NOT NULL,
    upload    TEXT NOT NULL,
    part      INTEGER NOT NULL,
    staged_at INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    body      BLOB NOT NULL,
    UNIQUE (database, upload, part)
) STRICT;
CREATE VIEW jobs AS
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
CREATE TABLE hw_subscriptions (
    database TEXT NOT NULL,
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_delayed (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    partition_id INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    pushed_at    INTEGER NOT NULL,
    ttl_seconds  REAL,
    count        INTEGER NOT NULL,
    codec        INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    records      ANY NOT NULL
) STRICT;
CREATE INDEX hw_delayed_by_time ON hw_delayed (due_at, id);
CREATE INDEX hw_delayed_by_partition ON hw_delayed (partition_id);
CREATE TABLE hw_delayed_ids (
    partition_id   INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    delayed_id     INTEGER NOT NULL,
    PRIMARY KEY (partition_id, transaction_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX hw_delayed_ids_by_row ON hw_delayed_ids (delayed_id);
CREATE INDEX hw_partitions_by_priority ON hw_partitions (queue_id, priority DESC) WHERE priority > 0;
CREATE INDEX hw_job_lanes_by_gate ON hw_job_lanes (gate) WHERE gate > 0;
CREATE INDEX hw_jobs_by_lane ON hw_jobs (lane) WHERE lane > 0 AND state <> 'completed';
CREATE VIEW message_queue AS
SELECT (s.lsn << 20) + r.key AS id,
       CASE WHEN q.name LIKE 'rooms/%' THEN substr(q.name, 7) ELSE p.name END AS canvas_id,
       coalesce(r.value ->> '$.type', r.value ->> '$.data.type', '') AS message_type,
       r.value -> '$.data' AS payload,
       strftime('%Y-%m-%d %H:%M:%f', s.written_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', s.expires_at / 1e6, 'unixepoch') AS expires_at
FROM hw_queues q
JOIN hw_partitions p ON p.queue_id = q.id
JOIN hw_segments s ON s.partition_id = p.id
JOIN json_each(CASE s.codec WHEN 0 THEN CAST(s.records AS TEXT) ELSE '[]' END) r
WHERE q.namespace = 'rooms' OR (q.name LIKE 'rooms/%' AND p.name <> 'presence');
CREATE VIEW canvas_watermarks AS
SELECT (g.id << 32) + p.id AS id,
       p.name AS canvas_id,
       g.name AS server_instance_id,
       c.position AS last_processed_id,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(c.token, 0) / 1e6, 'unixepoch') AS updated_at
FROM hw_queues q
JOIN hw_groups g ON g.queue_id = q.id
JOIN hw_cursors c ON c.group_id = g.id
JOIN hw_partitions p ON p.id = c.partition_id
WHERE q.namespace = 'rooms'
UNION ALL
SELECT max((s.lsn << 20) + r.key) AS id,
       substr(q.name, 7) AS canvas_id,
       r.value ->> '$.data.instance' AS server_instance_id,
       ((r.value ->> '$.data.watermark') << 20) + 1048575 AS last_processed_id,
       strftime('%Y-%m-%d %H:%M:%f', s.written_at / 1e6, 'unixepoch') AS updated_at
FROM hw_queues q
JOIN hw_partitions p ON p.queue_id = q.id
JOIN hw_segments s ON s.partition_id = p.id
JOIN json_each(CASE s.codec WHEN 0 THEN CAST(s.records AS TEXT) ELSE '[]' END) r
WHERE q.name LIKE 'rooms/%' AND p.name = 'presence'
  AND r.value ->> '$.type' = 'presence' AND r.value ->> '$.data.watermark' > 0
GROUP BY q.id, r.value ->> '$.data.instance';
CREATE TABLE hw_documents (
    database   TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    INTEGER NOT NULL,
    deleted    INTEGER NOT NULL,
    lsn        INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (database, collection, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX hw_documents_by_commit ON hw_documents (database, collection, lsn, id);
CREATE TABLE hw_document_indexes (
    database        TEXT NOT NULL,
    pattern         TEXT NOT NULL,
    field           TEXT NOT NULL,
    ready           INTEGER NOT NULL,
    done_collection TEXT NOT NULL,
    done_id         TEXT NOT NULL,
    PRIMARY KEY (database, pattern, field)
) STRICT, WITHOUT ROWID;
CREATE TABLE hw_document_keys (
    database   TEXT NOT NULL,
    collection TEXT NOT NULL,
    field      TEXT NOT NULL,
    key        BLOB NOT NULL,
    id         TEXT NOT NULL,
    PRIMARY KEY (database, collection, field, key, id)
) STRICT, WITHOUT ROWID;
