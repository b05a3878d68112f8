-- name: oldest_lsn
-- The oldest segment that is kept.
SELECT min(lsn) FROM hw_segments;

-- name: queue_names
-- The names of a database's queues.
SELECT name FROM hw_queues WHERE database = ? ORDER BY name;

-- name: queue_numbers
-- The names of a database's queues with their numbers, which are never given twice.
SELECT name, id FROM hw_queues WHERE database = ? ORDER BY name;

-- name: segment_at_or_before
-- What is known of the newest segment up to an LSN, without its records.
SELECT lsn, partition_id, first_offset, count, written_at, origin, checksum FROM hw_segments
WHERE lsn <= ? ORDER BY lsn DESC LIMIT 1;

-- name: outline
-- A stretch of the log of some queues, without the records. In LSN order without sorting.
SELECT s.lsn, s.partition_id, s.first_offset, s.count, s.written_at FROM hw_segments s
WHERE s.lsn > ?1 AND s.lsn <= ?2
  AND +s.partition_id IN (SELECT p.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
                          WHERE q.database = ?3 AND q.name IN (SELECT value FROM json_each(?4)))
ORDER BY s.lsn LIMIT ?5;

-- name: newest_of_queues
-- The newest segment of some queues in a stretch of the log, looked for from its end.
SELECT s.lsn FROM hw_segments s
WHERE s.lsn > ?1 AND s.lsn <= ?2
  AND +s.partition_id IN (SELECT p.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
                          WHERE q.database = ?3 AND q.name IN (SELECT value FROM json_each(?4)))
ORDER BY s.lsn DESC LIMIT 1;

-- name: bodies
-- A stretch of the log of some queues, with the records as they are kept. In LSN order without sorting.
SELECT s.lsn, s.partition_id, s.first_offset, s.count, s.written_at, s.codec, s.checksum, s.records
FROM hw_segments s
WHERE s.lsn > ?1 AND s.lsn <= ?2
  AND +s.partition_id IN (SELECT p.id FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
                          WHERE q.database = ?3 AND q.name IN (SELECT value FROM json_each(?4)))
ORDER BY s.lsn;

-- name: drops_after
-- Partitions of some queues, these or all, that lost records after an LSN in drops after a number.
SELECT q.name, p.name FROM hw_drops d JOIN hw_partitions p ON p.id = d.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE d.lsn > ?1 AND d.number > ?2 AND q.database = ?3 AND q.name IN (SELECT value FROM json_each(?4))
  AND (?5 = '[]' OR p.name IN (SELECT value FROM json_each(?5)))
ORDER BY q.name, p.name;

-- name: last_drop_of_queues
-- The number of the last drop that took records of some queues.
SELECT coalesce(max(d.number), 0) FROM hw_drops d
JOIN hw_partitions p ON p.id = d.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE q.database = ?1 AND q.name IN (SELECT value FROM json_each(?2));

-- name: last_loss
-- The newest LSN up to which a partition has lost records, of queues whose names fit a pattern; of some partitions, or all.
SELECT max(d.lsn) FROM hw_drops d JOIN hw_partitions p ON p.id = d.partition_id JOIN hw_queues q ON q.id = p.queue_id
WHERE q.database = ?1 AND EXISTS (SELECT 1 FROM json_each(?2, iif(q.name GLOB 'headwater/*', '$[1]', '$[0]')) pattern
              WHERE q.name GLOB pattern.value)
  AND (?3 = '[]' OR p.name IN (SELECT value FROM json_each(?3)));

-- name: last_lsn_before
-- The newest segment of a partition before an offset.
SELECT max(lsn) FROM hw_segments WHERE partition_id = ? AND first_offset < ?;

-- name: note_drop
-- What a partition has lost, and in which drop.
INSERT INTO hw_drops (partition_id, lsn, number) VALUES (?, ?, ?)
ON CONFLICT (partition_id) DO UPDATE SET lsn = max(lsn, excluded.lsn), number = excluded.number;

-- name: drop_queue_drops
-- Forget what the partitions of a queue have lost.
DELETE FROM hw_drops WHERE partition_id IN (SELECT id FROM hw_partitions WHERE queue_id = ?);

-- name: find_milestone
-- The last step of named work, and what was noted with it.
SELECT number, note FROM hw_milestones WHERE database = ? AND name = ?;

-- name: milestone_list
-- All named work between two names, and how far it is.
SELECT name, number, note, reached_at FROM hw_milestones
WHERE database = ? AND name >= ? AND name < ? ORDER BY name;

-- name: set_milestone
-- A step of named work was taken.
INSERT INTO hw_milestones (database, name, number, note, reached_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (database, name)
DO UPDATE SET number = excluded.number, note = excluded.note, reached_at = excluded.reached_at;

-- name: last_lsn_of_queues
-- The newest segment in queues whose names fit a pattern, kept or dropped: a look at the end of each partition.
SELECT max(coalesce((SELECT s.lsn FROM hw_segments s WHERE s.partition_id = p.id ORDER BY s.first_offset DESC LIMIT 1),
                    (SELECT d.lsn FROM hw_drops d WHERE d.partition_id = p.id)))
FROM hw_partitions p JOIN hw_queues q ON q.id = p.queue_id
WHERE q.database = ?1 AND EXISTS (SELECT 1 FROM json_each(?2, iif(q.name GLOB 'headwater/*', '$[1]', '$[0]')) pattern
              WHERE q.name GLOB pattern.value);
