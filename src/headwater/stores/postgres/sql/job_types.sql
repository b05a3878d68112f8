-- name: job_types
-- What the functions of a database were declared with.
SELECT name, policy FROM hw_job_types WHERE database = $1 ORDER BY name;

-- name: put_job_type
-- A function, new or declared in another way.
INSERT INTO hw_job_types (database, name, policy, changed_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (database, name) DO UPDATE SET policy = excluded.policy, changed_at = excluded.changed_at;
