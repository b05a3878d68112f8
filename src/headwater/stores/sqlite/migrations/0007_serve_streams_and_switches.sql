-- What servers keep for their clients: switches that all of them obey, streaming queries with their state, and a way to
-- find events by their name.

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
