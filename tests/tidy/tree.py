"""The tree as the tidy tests see it: which files belong to it, and the Python ones parsed.

Every check takes the top folder as a value, so that a test can plant a fault in a folder of its own and see it found.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_TOOLS = frozenset(
    {".git", ".venv", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"}
)


class Source(NamedTuple):
    """One Python file: where it is, below the top folder, and what it says."""

    path: Path
    text: str
    tree: ast.Module

    def at(self, line: int) -> str:
        """The place of a finding, as editors and terminals link it."""
        return f"{self.path.as_posix()}:{line}"


def list_files(root: Path) -> list[Path]:
    """The files that git tracks or would track, so that work not committed yet is judged too."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        return walk_files(root)
    # A file that was deleted but not yet committed so is still listed.
    return sorted(Path(name) for name in listing.stdout.split("\0") if name and (root / name).is_file())


def walk_files(root: Path) -> list[Path]:
    """The same for a folder that is no git checkout, such as an unpacked archive."""
    below = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path for path in below if MADE_BY_TOOLS.isdisjoint(path.parts))


def read_texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file that is text, with what it says."""
    for path in list_files(root):
        try:
            yield path, (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def parse_sources(root: Path, folder: str) -> list[Source]:
    """The Python files below one folder of the tree."""
    inside = (path for path in list_files(root) if path.suffix == ".py" and path.is_relative_to(folder))
    return [parse_source(root, path) for path in inside]


def parse_source(root: Path, path: Path) -> Source:
    text = (root / path).read_text(encoding="utf-8")
    return Source(path, text, ast.parse(text, filename=str(path)))


def plant(root: Path, files: dict[str, str]) -> Path:
    """Writes a small tree for a check to judge."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def report(findings: list[str]) -> str:
    """Findings as the message of a failed test, one a line."""
    return "\n" + "\n".join(findings)
