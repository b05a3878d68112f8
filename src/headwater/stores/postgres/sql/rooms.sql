-- What is looked at to say whether rooms have what they need. The catalogs are the server's own, so bodies differ.

-- name: room_views
-- The views that show rooms as tables, with their columns.
SELECT table_name::text, column_name::text FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name IN ('message_queue', 'canvas_watermarks')
ORDER BY table_name, ordinal_position;

-- name: room_indexes
-- The indexes of the tables behind them, with their columns.
SELECT t.relname::text, string_agg(a.attname::text, ', ' ORDER BY k.place) FROM pg_index i
JOIN pg_class t ON t.oid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number
WHERE t.relnamespace = current_schema()::regnamespace AND t.relname IN ('hw_queues', 'hw_partitions', 'hw_segments')
GROUP BY t.relname, i.indexrelid;

-- name: explain_messages_of_a_room
-- How the messages of a room behind an offset are found. A server reads small tables whole, whatever indexes they have.
EXPLAIN SELECT lsn, records FROM hw_segments WHERE partition_id = 0 AND first_offset > 0 ORDER BY first_offset LIMIT 100;

-- name: explain_expired_messages
-- How it is found what has expired: from the oldest of each partition on, up to the first that has not.
EXPLAIN SELECT lsn, expires_at FROM hw_segments WHERE partition_id = 0 ORDER BY first_offset LIMIT 1000;

-- name: explain_partition_of_a_room
-- How what only passes, and who is there, is found: each is a partition of its own.
EXPLAIN SELECT p.id FROM hw_queues q JOIN hw_partitions p ON p.queue_id = q.id
WHERE q.database = 'main' AND q.name = 'rooms/a' AND p.name = 'presence';
