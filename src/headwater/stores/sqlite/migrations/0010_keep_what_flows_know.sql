-- What the pipeline's flows keep with the log: how far a queue is archived, what came from where, and its rollups.

-- Everything of the queue up to this LSN is in an archive.
CREATE TABLE hw_archived (
    queue_id    INTEGER PRIMARY KEY,
    lsn         INTEGER NOT NULL,
    archived_at INTEGER NOT NULL
) STRICT;

-- Which positions of a foreign source (a file, a partition that was archived) a partition has taken in, as ranges.
CREATE TABLE hw_loaded (
    partition_id INTEGER NOT NULL,
    source       TEXT NOT NULL,
    covered      TEXT NOT NULL,
    PRIMARY KEY (partition_id, source)
) STRICT, WITHOUT ROWID;

-- Rows with an empty group count what was pushed, by type; rows of a group what became of it.
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

-- Where the last rollup of a database stood; the number lets one of two that run at once win.
CREATE TABLE hw_rollup_state (
    database TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    state    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Counted where a record is delivered again or given up: never on the way of one that goes well.
ALTER TABLE hw_groups ADD COLUMN retried INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hw_groups ADD COLUMN buried INTEGER NOT NULL DEFAULT 0;
