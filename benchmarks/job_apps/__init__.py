"""What the workers of each side import: the same function, registered as each of them wants it.

Where to find the store or server, workers learn from the environment.
"""

import os

FOLDER = "BENCH_FOLDER"
ADDRESS = "BENCH_ADDRESS"

_files: dict[str, int] = {}


def mark(path: str) -> None:
    """The job: append one byte. As little as can be seen from outside, and the same for every side."""
    file = _files.get(path)
    if file is None:
        file = _files[path] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, b".")


def folder() -> str:
    return os.environ.get(FOLDER, ".")


def address() -> str:
    return os.environ.get(ADDRESS, "")
