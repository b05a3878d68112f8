-- Messages that are delivered later than they are pushed: appended to the log when they are due.
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
