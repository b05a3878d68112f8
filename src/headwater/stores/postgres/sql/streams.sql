-- name: find_stream
-- A streaming query by its name.
SELECT id, source_queue, sink_queue, config_hash FROM hw_stream_queries WHERE database = $1 AND name = $2;

-- name: find_stream_by_id
-- A streaming query by its number, in the database it belongs to.
SELECT name, source_queue, sink_queue FROM hw_stream_queries WHERE id = $1 AND database = $2;

-- name: add_stream
-- A new streaming query.
INSERT INTO hw_stream_queries (database, name, source_queue, sink_queue, config_hash, created_at)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING id;

-- name: change_stream
-- A streaming query begins anew with another shape.
UPDATE hw_stream_queries SET source_queue = $1, sink_queue = $2, config_hash = $3 WHERE id = $4;

-- name: drop_stream_state
-- What a query remembered is forgotten.
DELETE FROM hw_stream_state WHERE query_id = $1;

-- name: set_stream_state
-- A query remembers a value.
INSERT INTO hw_stream_state (query_id, partition_id, key, value, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (query_id, partition_id, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;

-- name: drop_stream_value
-- A query forgets a value.
DELETE FROM hw_stream_state WHERE query_id = $1 AND partition_id = $2 AND key = $3;

-- name: get_stream_value
-- One value that a query remembers.
SELECT key, value, updated_at FROM hw_stream_state WHERE query_id = $1 AND partition_id = $2 AND key = $3;

-- name: stream_values
-- What a query remembers of a partition: keys with a beginning, and only windows that ended by a time (in ms). A zero
-- character, which JSON may have, would fail here.
SELECT key, value, updated_at FROM (
    SELECT key, value, updated_at, CASE WHEN $4::int8 IS NOT NULL THEN replace(value, '\u0000', '\ufffd')::json END AS shown
    FROM hw_stream_state WHERE query_id = $1 AND partition_id = $2 AND substr(key, 1, length($3)) = $3) kept
WHERE $4::int8 IS NULL OR CASE json_typeof(shown -> 'windowEnd')
                          WHEN 'number' THEN (shown ->> 'windowEnd')::numeric <= $4::int8 ELSE false END
ORDER BY key;
