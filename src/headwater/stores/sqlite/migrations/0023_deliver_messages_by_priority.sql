-- Messages with a priority have lanes of their own, which are looked at before all others.
ALTER TABLE hw_partitions ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

CREATE INDEX hw_partitions_by_priority ON hw_partitions (queue_id, priority DESC) WHERE priority > 0;
