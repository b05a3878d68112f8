-- name: long_transactions
-- Who has had a transaction open in this database for longer than this many seconds, the longest first.
SELECT pid, usename::text, application_name, state, extract(epoch FROM clock_timestamp() - xact_start)::int8
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - make_interval(secs => $1)
ORDER BY xact_start LIMIT 5;

-- name: long_prepared
-- Transactions that were prepared so long ago and not ended.
SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::int8 FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1)
ORDER BY prepared LIMIT 5;
