-- name: add_dead_letter
-- A record that failed for good.
INSERT INTO hw_dead_letters
    (queue_id, partition_id, group_name, record_offset, attempts, error, written_at, failed_at, codec, checksum,
     records)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: dead_letters
-- Dead letters of a queue, oldest first.
SELECT d.id, d.partition_id, coalesce(p.name, ''), d.group_name, d.record_offset, d.attempts, d.error, d.written_at,
       d.failed_at, d.codec, d.checksum, d.records
FROM hw_dead_letters d LEFT JOIN hw_partitions p ON p.id = d.partition_id
WHERE d.queue_id = $1 AND d.id > $2 ORDER BY d.id LIMIT $3;

-- name: get_dead_letter
-- One dead letter.
SELECT d.id, d.partition_id, coalesce(p.name, ''), d.group_name, d.record_offset, d.attempts, d.error, d.written_at,
       d.failed_at, d.codec, d.checksum, d.records
FROM hw_dead_letters d LEFT JOIN hw_partitions p ON p.id = d.partition_id
WHERE d.queue_id = $1 AND d.id = $2;

-- name: drop_dead_letter
-- Remove one dead letter.
DELETE FROM hw_dead_letters WHERE queue_id = $1 AND id = $2;
