-- name: all_rows
-- All rows of a table: the names of the table and of its columns are put in.
SELECT key FROM hw_meta;

-- name: count_rows
-- How many rows a table has: its name is put in.
SELECT count(*) FROM hw_meta;

-- name: all_meta
-- Every fact about the store.
SELECT key, value FROM hw_meta;

-- name: list_columns
-- The tables of the store with their columns.
SELECT c.relname::text, a.attname::text FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname LIKE 'hw\_%' AND a.attnum > 0 AND NOT a.attisdropped
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
