"""The PostgreSQL store: the same rules on a server, for processes on several machines."""
