"""The command line, run as people and scripts run it: as a program of its own."""
