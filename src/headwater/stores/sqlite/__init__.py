"""The default store: one SQLite file, any number of processes on one machine."""
