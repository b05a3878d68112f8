-- What is looked at to say whether rooms have what they need.

-- name: room_views
-- The views that show rooms as tables, with their columns.
SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
WHERE m.type = 'view' AND m.name IN ('message_queue', 'canvas_watermarks') ORDER BY m.name, c.cid;

-- name: room_indexes
-- The indexes of the tables behind them, with their columns.
SELECT m.name, group_concat(i.name, ', ' ORDER BY i.seqno) FROM sqlite_schema m
JOIN pragma_index_list(m.name) l JOIN pragma_index_info(l.name) i
WHERE m.type = 'table' AND m.name IN ('hw_queues', 'hw_partitions', 'hw_segments') GROUP BY m.name, l.name;

-- name: explain_messages_of_a_room
-- How the messages of a room behind an offset are found.
EXPLAIN QUERY PLAN SELECT lsn, records FROM hw_segments WHERE partition_id = 0 AND first_offset > 0 ORDER BY first_offset LIMIT 100;

-- name: explain_expired_messages
-- How it is found what has expired: from the oldest of each partition on, up to the first that has not.
EXPLAIN QUERY PLAN SELECT lsn, expires_at FROM hw_segments WHERE partition_id = 0 ORDER BY first_offset LIMIT 1000;

-- name: explain_partition_of_a_room
-- How what only passes, and who is there, is found: each is a partition of its own.
EXPLAIN QUERY PLAN SELECT p.id FROM hw_queues q JOIN hw_partitions p ON p.queue_id = q.id
WHERE q.database = 'main' AND q.name = 'rooms/a' AND p.name = 'presence';
