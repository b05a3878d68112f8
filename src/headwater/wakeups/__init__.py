"""How a process learns that somebody else has committed. A wake-up has no data; losing one costs time, not truth."""
