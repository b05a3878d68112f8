"""Where the log is kept: one contract, one package per kind of store."""
