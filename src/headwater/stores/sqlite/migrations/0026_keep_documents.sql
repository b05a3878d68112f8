-- Documents: rows with versions. A write and the change that the log tells are one commit.

-- `body` is the flat object that the wire carries, `lsn` the last segment of the commit that wrote it.
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

-- Replicas read in the order of commits.
CREATE INDEX hw_documents_by_commit ON hw_documents (database, collection, lsn, id);

-- Fields that have an index, for collections whose names fit a pattern. Until it is ready, `done_collection` and `done_id`
-- say how far those were taken in that were there before it.
CREATE TABLE hw_document_indexes (
    database        TEXT NOT NULL,
    pattern         TEXT NOT NULL,
    field           TEXT NOT NULL,
    ready           INTEGER NOT NULL,
    done_collection TEXT NOT NULL,
    done_id         TEXT NOT NULL,
    PRIMARY KEY (database, pattern, field)
) STRICT, WITHOUT ROWID;

-- The values of indexed fields, as keys that compare as the values do. Tombstones have none.
CREATE TABLE hw_document_keys (
    database   TEXT NOT NULL,
    collection TEXT NOT NULL,
    field      TEXT NOT NULL,
    key        BLOB NOT NULL,
    id         TEXT NOT NULL,
    PRIMARY KEY (database, collection, field, key, id)
) STRICT, WITHOUT ROWID;
