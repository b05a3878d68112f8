"""A store in a bucket: the SQLite tables in a scratch file, whose commits are kept as objects."""
