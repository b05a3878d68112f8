-- Parts of a commit that is too large for one request: uploaded one after the other, then committed together.
-- The body is compressed, `bytes` is its size before. What was not committed is dropped when it is old.
CREATE TABLE hw_staged (
    database  TEXT NOT NULL,
    upload    TEXT NOT NULL,
    part      INTEGER NOT NULL,
    staged_at INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    body      BLOB NOT NULL,
    UNIQUE (database, upload, part)
) STRICT;
