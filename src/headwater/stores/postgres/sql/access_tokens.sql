-- name: find_access_token
-- An access token by its id.
SELECT id, database, name, digest, scopes, queues, created_at, expires_at, revoked_at
FROM hw_access_tokens WHERE id = $1;

-- name: access_tokens
-- The access tokens of a database ('' means all), oldest first.
SELECT id, database, name, digest, scopes, queues, created_at, expires_at, revoked_at
FROM hw_access_tokens WHERE $1 = '' OR database = $1 ORDER BY created_at, id;

-- name: add_access_token
-- A new access token.
INSERT INTO hw_access_tokens (id, database, name, digest, scopes, queues, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: revoke_access_token
-- An access token is worth nothing from now on.
UPDATE hw_access_tokens SET revoked_at = $1 WHERE id = $2 AND database = $3 AND revoked_at IS NULL RETURNING id;
