"""The interfaces of the library beside the async one: without async, and inside the user's own transaction."""
