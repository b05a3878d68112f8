-- Retention goes through partitions in order, and a pop looks at the segment in hand: nobody asks by expiry.
DROP INDEX hw_segments_by_expiry;
