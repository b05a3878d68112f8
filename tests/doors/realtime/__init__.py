"""The realtime door: sessions, rooms."""
