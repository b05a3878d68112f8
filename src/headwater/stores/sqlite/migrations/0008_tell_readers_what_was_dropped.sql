-- For readers that come by LSN and not by a group: what retention took from each partition, and how far they came.

-- Everything of the partition up to this LSN is gone; the number of the drop rises with each over the whole store.
CREATE TABLE hw_drops (
    partition_id INTEGER PRIMARY KEY,
    lsn          INTEGER NOT NULL,
    number       INTEGER NOT NULL
) STRICT;

-- Named work in numbered steps: a step is taken once, in the transaction that holds what it did.
CREATE TABLE hw_milestones (
    database   TEXT NOT NULL,
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    note       TEXT NOT NULL,
    reached_at INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
