"""A shop that writes orders and their messages together, for ever: run by a test that kills it."""

import random
import sqlite3
import sys

from headwater import outbox

path, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
connection = sqlite3.connect(path, timeout=30)
print("ready", flush=True)
while True:
    with connection:
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM shop_orders").fetchone()
        connection.execute("INSERT INTO shop_orders VALUES (?)", (last + 1,))
        outbox.stage(connection, "orders", {"id": last + 1}, partition="p")
        if chance.random() < 0.2:
            connection.execute("INSERT INTO shop_orders VALUES (?)", (last + 2,))
            outbox.stage(connection, "orders", {"id": last + 2}, partition="p")
    try:
        with connection:
            connection.execute("INSERT INTO shop_orders VALUES (-1)")
            outbox.stage(connection, "orders", {"id": -1}, partition="p")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
