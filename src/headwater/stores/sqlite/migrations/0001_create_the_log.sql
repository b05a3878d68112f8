-- The log, its readers and what belongs to them. Names carry the prefix hw_ because the file may be shared with the
-- tables of the team's own application.

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

-- start_offset is raised only when records are dropped: the end of a partition is the end of its last segment, or this.
CREATE TABLE hw_partitions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id     INTEGER NOT NULL,
    name         TEXT NOT NULL,
    start_offset INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    UNIQUE (queue_id, name)
) STRICT;

CREATE INDEX hw_partitions_by_queue ON hw_partitions (queue_id, id);

-- One row for the records that one commit adds to one partition. The body comes last: reading the rest does not load it.
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
CREATE INDEX hw_segments_by_expiry ON hw_segments (expires_at) WHERE expires_at IS NOT NULL;

-- discovered: partitions up to this id have a cursor for the group; newer ones get theirs at the next pop.
CREATE TABLE hw_groups (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    name       TEXT NOT NULL,
    since_lsn  INTEGER NOT NULL DEFAULT 0,
    discovered INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
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
    ready_at     INTEGER,
    PRIMARY KEY (group_id, partition_id)
) STRICT, WITHOUT ROWID;

-- A pop and an ack change the row and its place in the first index, and no other page: every page costs at each commit.
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
) STRICT;

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
    applied_at INTEGER NOT NULL,
    PRIMARY KEY (database, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX hw_applied_by_time ON hw_applied (applied_at);
