-- From when on a consumer group reads queues that it has not read yet, in microseconds since 1970.
CREATE TABLE hw_subscriptions (
    database TEXT NOT NULL,
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (database, name)
) STRICT, WITHOUT ROWID;
