-- Dead letters get a checksum as segments have one; those that are there already go without.
ALTER TABLE hw_dead_letters ADD COLUMN checksum INTEGER;
