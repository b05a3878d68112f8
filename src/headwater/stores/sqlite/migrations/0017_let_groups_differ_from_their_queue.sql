-- What a consumer group has otherwise than its queue: its lease, its retries and their back-off.
ALTER TABLE hw_groups ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
