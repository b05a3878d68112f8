-- Who holds a lease, as far as the consumer says.
ALTER TABLE hw_cursors ADD COLUMN holder TEXT NOT NULL DEFAULT '';
