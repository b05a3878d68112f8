-- name: create_outbox
-- Where messages wait in the users' own database; the number gives their order.
CREATE TABLE IF NOT EXISTS headwater_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind   TEXT NOT NULL,
    body   TEXT NOT NULL,
    error  TEXT
);

-- name: add_staged
-- One more that waits.
INSERT INTO headwater_outbox (kind, body) VALUES (?, ?);

-- name: staged
-- The oldest that wait and were not set aside.
SELECT number, kind, body FROM headwater_outbox WHERE error IS NULL ORDER BY number LIMIT ?;

-- name: drop_staged
-- It is in the log.
DELETE FROM headwater_outbox WHERE number = ?;

-- name: set_aside
-- It was refused for good.
UPDATE headwater_outbox SET error = ? WHERE number = ?;
