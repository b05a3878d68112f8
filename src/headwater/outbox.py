"""Pushes inside your own SQLite transaction: your rows and the message commit together, or neither does.

>>> from headwater import outbox
>>> with connection:                                   # your own apsw connection to the same file
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.push(connection, "orders", {"id": 7}, partition="customer-42")

The message is delivered like any other as soon as your transaction commits; how durable it is, your connection decides.
"""

from headwater.stores.sqlite.outbox import push

__all__ = ["push"]
