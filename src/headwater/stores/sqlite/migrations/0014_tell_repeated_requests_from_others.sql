-- What an idempotency key was used for, so that another request with the same key can be refused. Null: from before.
ALTER TABLE hw_applied ADD COLUMN fingerprint TEXT;
