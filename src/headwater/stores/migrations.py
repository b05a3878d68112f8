"""The scripts of an engine that bring its tables up to date: `migrations/NNNN_what_it_does.sql`, each applied once."""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """One script."""

    number: int
    name: str
    text: str


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """Every script of the engine in this package, in order. Read once: many stores may be opened by one process."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text()))
    return tuple(sorted(found))


@cache
def load_fresh(package: str) -> tuple[int, str]:
    """The tables of a fresh place, `fresh_NNNN.sql`: which migration they are as new as, and the script."""
    (file,) = (file for file in files(package).joinpath("migrations").iterdir() if file.name.startswith("fresh_"))
    return int(file.name.removeprefix("fresh_").removesuffix(".sql")), file.read_text()
