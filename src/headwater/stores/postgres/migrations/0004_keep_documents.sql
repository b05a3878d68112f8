-- Documents: rows with versions. A write and the change that the log tells are one commit.

-- `body` is the flat object that the wire carries, `lsn` the last segment of the commit that wrote it.
CREATE TABLE hw_documents (
    database   text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    version    int8 NOT NULL,
    deleted    int8 NOT NULL,
    lsn        int8 NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (database, collection, id)
);

-- Replicas read in the order of commits.
CREATE INDEX hw_documents_by_commit ON hw_documents (database, collection, lsn, id);

-- Fields that have an index, for collections whose names fit a pattern. Until it is ready, `done_collection` and `done_id`
-- say how far those were taken in that were there before it.
CREATE TABLE hw_document_indexes (
    database        text COLLATE "C" NOT NULL,
    pattern         text COLLATE "C" NOT NULL,
    field           text COLLATE "C" NOT NULL,
    ready           int8 NOT NULL,
    done_collection text COLLATE "C" NOT NULL,
    done_id         text COLLATE "C" NOT NULL,
    PRIMARY KEY (database, pattern, field)
);

-- The values of indexed fields, as keys that compare as the values do. Tombstones have none.
CREATE TABLE hw_document_keys (
    database   text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    field      text COLLATE "C" NOT NULL,
    key        bytea NOT NULL,
    id         text COLLATE "C" NOT NULL,
    PRIMARY KEY (database, collection, field, key, id)
);
