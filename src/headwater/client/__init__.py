"""The same verbs as on an open store, over HTTP.

    Queue, Database, Consumption … ─► remote (operations as requests) ─► exchange (repeats) ─► pool ─► connection

The interfaces are those of the services; here is only what serves them from afar. Made by `headwater.connect`.
"""
