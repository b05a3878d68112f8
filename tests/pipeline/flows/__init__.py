"""Flows over real stores and real files, compared with what plain Python says."""
