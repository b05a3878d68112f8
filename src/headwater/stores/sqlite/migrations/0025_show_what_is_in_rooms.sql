-- replaces view: message_queue
-- replaces view: canvas_watermarks
-- A room is a queue under "rooms/": what is kept and what only passes are its messages, and servers say in its presence how
-- far they have delivered it. An LSN that was delivered covers every id of its segment, so ids and watermarks compare.
-- Queues of the namespace "rooms" are shown as before, a partition each.

CREATE VIEW IF NOT EXISTS message_queue AS
SELECT (s.lsn << 20) + r.key AS id,
       CASE WHEN q.name LIKE 'rooms/%' THEN substr(q.name, 7) ELSE p.name END AS canvas_id,
       coalesce(r.value ->> '$.type', r.value ->> '$.data.type', '') AS message_type,
       r.value -> '$.data' AS payload,
       strftime('%Y-%m-%d %H:%M:%f', s.written_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%d %H:%M:%f', s.expires_at / 1e6, 'unixepoch') AS expires_at
FROM hw_queues q
JOIN hw_partitions p ON p.queue_id = q.id
JOIN hw_segments s ON s.partition_id = p.id
JOIN json_each(CASE s.codec WHEN 0 THEN CAST(s.records AS TEXT) ELSE '[]' END) r
WHERE q.namespace = 'rooms' OR (q.name LIKE 'rooms/%' AND p.name <> 'presence');

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
WHERE q.namespace = 'rooms'
UNION ALL
SELECT max((s.lsn << 20) + r.key) AS id,
       substr(q.name, 7) AS canvas_id,
       r.value ->> '$.data.instance' AS server_instance_id,
       ((r.value ->> '$.data.watermark') << 20) + 1048575 AS last_processed_id,
       strftime('%Y-%m-%d %H:%M:%f', s.written_at / 1e6, 'unixepoch') AS updated_at
FROM hw_queues q
JOIN hw_partitions p ON p.queue_id = q.id
JOIN hw_segments s ON s.partition_id = p.id
JOIN json_each(CASE s.codec WHEN 0 THEN CAST(s.records AS TEXT) ELSE '[]' END) r
WHERE q.name LIKE 'rooms/%' AND p.name = 'presence'
  AND r.value ->> '$.type' = 'presence' AND r.value ->> '$.data.watermark' > 0
GROUP BY q.id, r.value ->> '$.data.instance';
