-- Rooms as the tables that people know: a room is a partition of a queue in the namespace "rooms", a server that follows
-- it a group. Compressed and encrypted segments cannot be shown as text and are left out.

CREATE VIEW IF NOT EXISTS message_queue AS
SELECT (s.lsn << 20) + r.key AS id,
       p.name AS canvas_id,
       coalesce(r.value ->> '$.type', r.value ->> '$.data.type', '') AS message_type,
       r.value -> '$.data' AS payload,
       strftime('%Y-%m-%d %H:%M:%f', s.written_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', s.expires_at / 1e6, 'unixepoch') AS expires_at
FROM hw_queues q
JOIN hw_partitions p ON p.queue_id = q.id
JOIN hw_segments s ON s.partition_id = p.id
JOIN json_each(CASE s.codec WHEN 0 THEN CAST(s.records AS TEXT) ELSE '[]' END) r
WHERE q.namespace = 'rooms';

CREATE VIEW IF NOT EXISTS canvas_watermarks AS
SELECT (g.id << 32) + p.id AS id,
       p.name AS canvas_id,
       g.name AS server_instance_id,
       c.position AS last_processed_id,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(c.token, 0) / 1e6, 'unixepoch') AS updated_at
FROM hw_queues q
JOIN hw_groups g ON g.queue_id = q.id
JOIN hw_cursors c ON c.group_id = g.id
JOIN hw_partitions p ON p.id = c.partition_id
WHERE q.namespace = 'rooms';
