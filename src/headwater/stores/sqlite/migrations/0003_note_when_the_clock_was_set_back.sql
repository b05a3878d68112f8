-- Between two rows the times in the log rise with the LSN. `lsn` is the last one before the clock was set back.
CREATE TABLE hw_clock_jumps (
    id INTEGER PRIMARY KEY,
    lsn INTEGER NOT NULL,
    was INTEGER NOT NULL,
    became INTEGER NOT NULL
) STRICT;
