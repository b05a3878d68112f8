-- A concurrency key holds for all queues and types of a database: beside the lanes that its jobs queue in, one a queue and
-- type, it has a gate that they go through. A gate is a lane in which nothing queues: its queue is 0, and its type the
-- database.
ALTER TABLE hw_job_lanes ADD COLUMN gate INTEGER NOT NULL DEFAULT 0;

INSERT INTO hw_job_lanes (queue_id, type, key, concurrency, running)
SELECT 0, q.database, l.key, max(l.concurrency), sum(l.running)
FROM hw_job_lanes l JOIN hw_job_queues q ON q.id = l.queue_id
WHERE l.key <> '' AND l.takes_turns = 0 GROUP BY q.database, l.key;

UPDATE hw_job_lanes SET gate = (
    SELECT g.id FROM hw_job_lanes g JOIN hw_job_queues q ON q.database = g.type
    WHERE g.queue_id = 0 AND g.key = hw_job_lanes.key AND q.id = hw_job_lanes.queue_id)
WHERE queue_id <> 0 AND key <> '' AND takes_turns = 0;

CREATE INDEX hw_job_lanes_by_gate ON hw_job_lanes (gate) WHERE gate > 0;

-- Whether a lane may be forgotten: nothing is in it that could still run. What has completed never comes back.
CREATE INDEX hw_jobs_by_lane ON hw_jobs (lane) WHERE lane > 0 AND state <> 'completed';
