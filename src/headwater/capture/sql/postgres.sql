-- name: server_identity
-- Which server it is; a standby that takes its place has the same.
SELECT system_identifier::text FROM pg_control_system();

-- name: flushed_lsn
-- Where the server's log ends.
SELECT pg_current_wal_flush_lsn()::text;

-- name: find_table
-- A table, how its rows are told in changes, and the columns that they are known by.
SELECT c.oid::int8, n.nspname, c.relname, c.relkind, c.relreplident, ARRAY(
    SELECT a.attname::text FROM pg_index i
    JOIN unnest(i.indkey) WITH ORDINALITY AS k(number, place) ON true
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
    WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
    ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s);

-- name: name_of_table
-- What the table of a number is called now.
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s;

-- name: find_publication
-- A publication: its number, which transaction wrote it last, what it tells, and whether it is the user's own. Schemas are
-- known by what depends on it, because not every server has their catalog.
SELECT p.oid::int8, p.oid::text || '.' || p.xmin::text, p.puballtables OR EXISTS (
        SELECT FROM pg_depend d WHERE d.refclassid = 'pg_publication'::regclass AND d.refobjid = p.oid
        AND d.classid <> 'pg_publication_rel'::regclass),
    p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot,
    pg_get_userbyid(p.pubowner) = current_user
FROM pg_publication p WHERE p.pubname = %s;

-- name: published_tables
-- The tables of a publication, which transaction wrote each last, whether all of it is told, and whether it has
-- partitions. Not every server has filters and lists of columns.
SELECT n.nspname || '.' || c.relname, r.oid::text || '.' || r.xmin::text,
    to_jsonb(r) ->> 'prqual' IS NULL AND to_jsonb(r) ->> 'prattrs' IS NULL, c.relkind = 'p'
FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.prpubid = %s;

-- name: create_publication
-- A publication of some tables. Changes of a partition are told as those of its table.
CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true);

-- name: set_published_tables
-- A publication has these tables and no others.
ALTER PUBLICATION {} SET TABLE {};

-- name: publish_every_change
-- A publication that is there tells what a new one does.
ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = true);

-- name: drop_publication
-- A publication goes.
DROP PUBLICATION IF EXISTS {};

-- name: find_slot
-- How far a slot was confirmed, whether the server still keeps what follows, whether somebody is connected, and for what
-- it was made. Names of slots hold for the whole server: one may be another database's.
SELECT confirmed_flush_lsn::text, wal_status, active, coalesce(database::text, ''), coalesce(plugin::text, ''),
    database IS NOT DISTINCT FROM current_database()
FROM pg_replication_slots WHERE slot_name = %s;

-- name: claim_slot
-- Whether nobody else has said that it follows a slot; from then on we have.
SELECT pg_try_advisory_lock(1213678932, hashtext(%s));

-- name: drop_slot
-- A slot of this database goes, if it is there.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = %s AND database = current_database() AND plugin = 'pgoutput';

-- name: slot_lag
-- Bytes that were not confirmed, bytes that are kept, and how many may be kept.
SELECT pg_current_wal_lsn() - confirmed_flush_lsn, pg_current_wal_lsn() - restart_lsn,
    safe_wal_size + (pg_current_wal_lsn() - restart_lsn)
FROM pg_replication_slots WHERE slot_name = %s AND database = current_database();

-- name: list_columns
-- What changes of a table tell: its columns but for generated ones, with their types as they were declared.
SELECT attname::text, atttypid::int8 FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum;

-- name: declare_rows
-- Every row of a table, to be fetched some at a time.
DECLARE rows CURSOR FOR SELECT {} FROM {};
