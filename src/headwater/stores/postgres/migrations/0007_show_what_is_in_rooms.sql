-- Rooms as the tables that people know. A room is a queue under "rooms/": what is kept and what only passes are its messages,
-- and servers say in its presence how far they have delivered it. An LSN that was delivered covers every id of its segment,
-- so ids and watermarks compare. Compressed and encrypted segments cannot be shown as text and are left out.
-- A zero byte, which the server cannot show, is shown as the sign for it.
-- Something of these names that is there already is the user's, in a schema that was adopted: it stays.

DO $views$
BEGIN
    IF to_regclass(format('%I.message_queue', current_schema())) IS NULL THEN
        CREATE VIEW message_queue AS
        SELECT (s.lsn << 20) + r.place - 1 AS id,
               substr(q.name, 7) AS canvas_id,
               coalesce(r.value ->> 'type', '') AS message_type,
               (r.value -> 'data')::text AS payload,
               to_char(to_timestamp(s.written_at / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') AS created_at,
               to_char(to_timestamp(s.expires_at / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') AS expires_at
        FROM hw_queues q
        JOIN hw_partitions p ON p.queue_id = q.id
        JOIN hw_segments s ON s.partition_id = p.id
        CROSS JOIN LATERAL json_array_elements(
            CASE s.codec WHEN 0 THEN
                regexp_replace(convert_from(s.records, 'UTF8'), '(?<!\\)((\\\\)*)\\u0000', '\1\\u2400', 'g')
            ELSE '[]' END::json
        ) WITH ORDINALITY AS r (value, place)
        WHERE q.name LIKE 'rooms/%' AND p.name IN ('messages', 'memory');
    END IF;
    IF to_regclass(format('%I.canvas_watermarks', current_schema())) IS NULL THEN
        CREATE VIEW canvas_watermarks AS
        SELECT DISTINCT ON (q.id, r.value -> 'data' ->> 'instance')
               (s.lsn << 20) + r.place - 1 AS id,
               substr(q.name, 7) AS canvas_id,
               r.value -> 'data' ->> 'instance' AS server_instance_id,
               ((r.value -> 'data' ->> 'watermark')::int8 << 20) + 1048575 AS last_processed_id,
               to_char(to_timestamp(s.written_at / 1e6) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS') AS updated_at
        FROM hw_queues q
        JOIN hw_partitions p ON p.queue_id = q.id
        JOIN hw_segments s ON s.partition_id = p.id
        CROSS JOIN LATERAL json_array_elements(
            CASE s.codec WHEN 0 THEN
                regexp_replace(convert_from(s.records, 'UTF8'), '(?<!\\)((\\\\)*)\\u0000', '\1\\u2400', 'g')
            ELSE '[]' END::json
        ) WITH ORDINALITY AS r (value, place)
        WHERE q.name LIKE 'rooms/%' AND p.name = 'presence'
          AND r.value ->> 'type' = 'presence' AND (r.value -> 'data' ->> 'watermark')::int8 > 0
        ORDER BY q.id, r.value -> 'data' ->> 'instance', s.lsn DESC, r.place DESC;
    END IF;
END
$views$;
