-- Access tokens: what each allows, and a digest of its text. The text itself is shown once and kept nowhere.

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
