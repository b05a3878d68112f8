"""A table in the users' own database that holds messages on their way to the log."""
