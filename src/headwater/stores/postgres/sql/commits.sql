-- name: take_append_lock
-- One process appends at a time. A statement of its own: what it would read besides is older than the lock.
SELECT pg_advisory_xact_lock(1213678932, hashtext(current_schema()));

-- name: take_lock_of_schema
-- The same for a schema that may not be there yet.
SELECT pg_advisory_xact_lock(1213678932, hashtext($1));

-- name: read_version
-- A number that every commit that wrote has raised.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM hw_version;

-- name: read_clock
-- The time, in microseconds since 1970.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8;

-- name: refuse_overtaken
-- Fails when somebody has committed since this version.
SELECT 1 / ((CASE WHEN is_called THEN last_value ELSE 0 END) = $1)::int4 FROM hw_version;

-- name: refuse_unlike
-- Fails unless names and options are those of a version, the store is one of these, no later time than this was seen, and
-- nothing is due.
SELECT 1 / (
    coalesce((SELECT value::int8 FROM hw_meta WHERE key = 'catalog_version'), 0) = $1
    AND (SELECT value FROM hw_meta WHERE key = 'identity') = ANY ($2::text[])
    AND greatest(
        coalesce((SELECT written_at FROM hw_segments
                  WHERE lsn > coalesce((SELECT max(lsn) FROM hw_clock_jumps), 0) ORDER BY lsn DESC LIMIT 1), 0),
        coalesce((SELECT value::int8 FROM hw_meta
                  WHERE key = 'clock_at/' || coalesce((SELECT max(id) FROM hw_clock_jumps), 0)), 0)) <= $3
    AND coalesce((SELECT min(due_at) FROM hw_delayed) > $4, true))::int4;

-- name: raise_version
-- This commit writes.
SELECT nextval('hw_version');

-- name: barrier
-- A commit that waits for the disk, and so for all commits before it.
SELECT pg_logical_emit_message(true, 'headwater', '');

-- name: insist_on_disk
-- A server may be set not to wait for its disk; the barrier must.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';

-- name: is_flushed
-- Whether everything that can be seen by now is on the disk. A standby is sent only what is on that of its server.
SELECT CASE WHEN pg_is_in_recovery() THEN true ELSE pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn() END;

-- name: read_standing
-- Whose data this server has, whether it is a standby, and on which timeline it writes.
SELECT system_identifier::text, pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
FROM pg_control_system();

-- name: replica_lag
-- Whether this is a standby, and by how many seconds what it shows may be older than its server: none when it has everything
-- that it was sent.
SELECT pg_is_in_recovery(), CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
    ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 0)::float8 END;

-- name: touched_with_lanes
-- The newest segments without their records, with the addresses of their partitions.
SELECT s.lsn, s.partition_id, s.first_offset, s.count, q.database, q.name, q.namespace, q.task, p.name
FROM (SELECT lsn, partition_id, first_offset, count FROM hw_segments WHERE lsn > $1 ORDER BY lsn LIMIT $2) s
JOIN hw_partitions p ON p.id = s.partition_id JOIN hw_queues q ON q.id = p.queue_id
ORDER BY s.lsn;

-- name: list_tables
-- The tables of a schema, whoever made them.
SELECT tablename FROM pg_tables WHERE schemaname = $1;

-- name: find_schema
-- Whether a schema is there.
SELECT 1 FROM pg_namespace WHERE nspname = $1;

-- name: describe_server
-- What is asked of a server that looks after a log, and how large the tables of this one are.
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('transaction_read_only'),
       pg_size_bytes(current_setting('shared_buffers')),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r');

-- name: current_database
-- The database that the store is in.
SELECT current_database()::text;

-- name: notify
-- Tell whoever listens that something was committed.
SELECT pg_notify($1, $2);

-- name: session_number
-- Which of its sessions the server answers in.
SELECT pg_backend_pid();
