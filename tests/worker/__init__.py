"""Running jobs: commands, functions, and the worker that runs them, in this process."""
