"""The realtime door: one conversation at `/realtime/ws`, or only listening at `/realtime/sse`.

    client ── {id, type, payload} ──► session.py ── by type (table.py) ──► a subject's handlers: rooms.py, …
           ◄── answers, events ──────────┘   hall.py looks after all sessions: who is there, heartbeats, how often

A subject is one module with a mapping of message types to `MessageHandler`s, and one line in `table.py`.
"""
