"""The HTTP API of queen-mq: what its published clients send and read, on our services.

shapes.py      bodies, queries and answers, as types
identities.py  partitions, leases and records by the names that travel
push.py  pop.py  reports.py  transactions.py  …   the routes, one subject each
"""
