"""Named SQL statements, read from a store's `sql/` folder.

A statement begins with `-- name: some_name`, says its purpose in the comment below, and ends with the next one.
"""

import re
from functools import cache
from importlib.resources import files

_heading = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


class Statements:
    """The statements of one store, each an attribute: `sql.add_segment`."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._names = sorted(texts)
        self.__dict__.update(texts)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no SQL statement is named {name}")

    def names(self) -> list[str]:
        """All names there are."""
        return self._names


@cache
def load_statements(package: str) -> Statements:
    """All statements in the `sql/` folder of `package`."""
    texts: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            found = parse_statements(file.read_text())
            if twice := sorted(texts.keys() & found.keys()):
                raise ValueError(f"two statements are named {', '.join(twice)}")
            texts.update(found)
    return Statements(texts)


def parse_statements(text: str) -> dict[str, str]:
    """The statements in one file's text. Comments are dropped: SQLite would keep and compare them with each call."""
    parts = _heading.split(text)[1:]
    return {name: _without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _without_comments(body: str) -> str:
    lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")
