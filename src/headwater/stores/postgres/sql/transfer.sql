-- name: all_rows
-- All rows of a table in the order of their keys: the names of the table, of its columns and of its key are put in.
SELECT key FROM hw_meta ORDER BY value;

-- name: some_rows
-- Rows of a table by their numbers: names are put in.
SELECT key FROM hw_meta WHERE value = ANY($1);

-- name: remove_row
-- A row of a table by its key: names are put in.
DELETE FROM hw_meta WHERE (value) = ($1);

-- name: highest_number
-- The highest number of a row, a text where these are texts: the name of the table is put in.
SELECT max(value) FROM hw_meta;

-- name: list_keys
-- What tells rows of each table apart, and whether that is a text: these have an order of their own in each database.
SELECT c.relname::text, a.attname::text, a.attcollation <> 0 FROM pg_class c
JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'hw\_%' AND a.attname <> 'version'
ORDER BY c.relname, array_position(i.indkey::int2[], a.attnum);

-- name: sum_records
-- How many records the log has.
SELECT coalesce(sum(count), 0) FROM hw_segments;

-- name: count_rows
-- How many rows a table has: its name is put in.
SELECT count(*) FROM hw_meta;

-- name: all_meta
-- Every fact about the store.
SELECT key, value FROM hw_meta;

-- name: list_columns
-- The tables of the store with their columns, but for what serves this engine alone: which version of a row is the living
-- one, and where to begin to look. Two that are kept for servers of before stand for those that took their place.
SELECT c.relname::text, a.attname::text FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname LIKE 'hw\_%' AND a.attnum > 0 AND NOT a.attisdropped
  AND c.relname NOT IN ('hw_ready_floors', 'hw_job_floors', 'hw_job_tallies', 'hw_job_minute_tallies')
  AND (c.relname, a.attname) <> ('hw_cursors', 'version')
ORDER BY c.relname, a.attnum;

-- name: hold_append_lock
-- Keep everybody from appending until this connection ends.
SELECT pg_advisory_lock(1213678932, hashtext(current_schema()));

-- name: numbers_given
-- The highest number that a table has ever given to a row.
SELECT c.relname::text, s.last_value FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_depend d ON d.refobjid = c.oid AND d.deptype = 'i' AND d.classid = 'pg_class'::regclass
JOIN pg_class q ON q.oid = d.objid AND q.relkind = 'S'
JOIN pg_sequences s ON s.schemaname = n.nspname AND s.sequencename = q.relname
WHERE n.nspname = current_schema() AND s.last_value IS NOT NULL;

-- name: set_number_given
-- New rows of a table get numbers after this one.
SELECT setval(pg_get_serial_sequence($1, 'id'), $2) WHERE pg_get_serial_sequence($1, 'id') IS NOT NULL;
