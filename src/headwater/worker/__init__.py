"""Running jobs: a supervisor, its worker processes, and what they run: commands and functions.

supervisor ── keeps N workers alive, takes back what a dead one held
  └─ worker ── claims, runs, reports, keeps its lease
       ├─ commands, each in a session of its own
       └─ runner ── the process in which Python functions run
"""
