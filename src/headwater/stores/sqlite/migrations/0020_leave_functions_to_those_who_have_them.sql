-- Lanes whose jobs are functions: a worker that does not have the function passes over them at no cost.
ALTER TABLE hw_job_lanes ADD COLUMN functions INTEGER NOT NULL DEFAULT 0;

-- Until when a worker's lease holds by the clock that nobody can set, and in which run of the machine.
ALTER TABLE hw_workers ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE hw_workers ADD COLUMN steady_until INTEGER NOT NULL DEFAULT 0;
