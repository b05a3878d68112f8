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
-- The oldest that wait after a number and were not set aside.
SELECT number, kind, body FROM headwater_outbox WHERE error IS NULL AND number > ? ORDER BY number LIMIT ?;

-- name: touch_outbox
-- Changes nothing, and fails where nothing could be changed.
UPDATE headwater_outbox SET error = error WHERE number < 0;

-- name: drop_staged
-- It is in the log.
DELETE FROM headwater_outbox WHERE number = ?;

-- name: set_aside
-- It was refused for good.
UPDATE headwater_outbox SET error = ? WHERE number = ? AND error IS NULL;

-- name: list_aside
-- What was refused for good.
SELECT number, kind, body, error FROM headwater_outbox WHERE error IS NOT NULL ORDER BY number;

-- name: wait_again
-- All that was set aside is tried once more.
UPDATE headwater_outbox SET error = NULL WHERE error IS NOT NULL;

-- name: one_waits_again
-- One that was set aside is tried once more.
UPDATE headwater_outbox SET error = NULL WHERE number = ? AND error IS NOT NULL;
