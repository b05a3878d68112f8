"""Our own wire under `/v1`: the operations of the log as they are. What `headwater.connect` speaks."""
