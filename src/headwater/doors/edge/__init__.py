"""The transport that `headwater serve` runs on: HTTP/1.1 over one `asyncio.Protocol`, parsed by httptools.

    bytes ─► reading.py ─► arrivals ─► connection.py ─► handler ─► writing.py ─► bytes
             (no I/O)                  (order, time, back-pressure)

`server.py` listens, counts connections and stops without cutting anybody off.
"""
