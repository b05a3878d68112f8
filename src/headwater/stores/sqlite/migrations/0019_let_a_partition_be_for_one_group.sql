-- Dead letters that are delivered once more go to the group that they failed for: the only reader of their partition.
ALTER TABLE hw_partitions ADD COLUMN reader TEXT NOT NULL DEFAULT '';
