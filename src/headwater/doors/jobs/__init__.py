"""Jobs over HTTP, under `/api/v1/jobs`. Functions only: what a stranger may make run is what a worker knows by name."""
