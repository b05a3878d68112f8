"""Chores, one a file, each a bounded bite at a time so that nobody waits for them."""
