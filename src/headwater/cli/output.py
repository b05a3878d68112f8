"""Everything the commands print, in one place: lines and tables for people, JSON for programs, errors on stderr.

Tables come from rich: coloured on a terminal, plain elsewhere, and never cut to a width nobody looks at. Texts from
messages are foreign: what would steer a terminal is shown escaped.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from headwater.model.terminal import clean, clean_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PLAIN_WIDTH = 10_000
SECOND = 1_000_000
KIB = 1_024


# ── for programs ──


def print_json(value: object, file: TextIO | None = None) -> None:
    """One value as one line of JSON."""
    import msgspec

    line = msgspec.json.format(msgspec.json.encode(value), indent=-1)
    print(clean_json(line.decode()), file=file or sys.stdout, flush=True)


# ── for people ──


def print_line(*parts: tuple[str, str]) -> None:
    """One line, made of texts and their styles: `print_line(("orders", "cyan"), (" is empty", ""))`."""
    if sys.stdout.isatty():
        console_for(sys.stdout).print(_text(parts), soft_wrap=True)
    else:
        # A pipe takes a million lines; rich would take minutes for them, and there is nothing to colour.
        print("".join(clean(text) for text, _ in parts), flush=True)


def note(message: str) -> None:
    """A remark that is no result: on stderr, so that a pipe gets results only."""
    console_for(sys.stderr).print(_text([(message, "dim")]), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under their headings; numbers stand at the right."""
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[position], int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text([(show(cell), "")]) for cell in row))
    console_for(sys.stdout).print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values below each other; a list takes a line for each of its items."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        for line, item in enumerate(value if isinstance(value, list) else [value]):
            table.add_row(_text([("" if line else name, "")]), _text([(show(item), "")]))
    console_for(sys.stdout).print(table)


def print_error(code: str, message: str, *, as_json: bool) -> None:
    """What went wrong, in one line on stderr."""
    message = " ".join(message.split())
    if as_json:
        print_json({"error": {"code": code, "message": message}}, sys.stderr)
        return
    console_for(sys.stderr).print(_text([(f"error[{code}]", "bold red"), (f": {message}", "")]), soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when somebody said yes: by option, or on the terminal when there is one."""
    import typer

    from headwater.cli.exits import Misuse

    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"nobody is here to ask ({question}): say --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


@contextmanager
def progress(title: str, total: float | None, *, shown: bool) -> Iterator[Callable[[float], None]]:
    """A bar on stderr while something takes long; call what it gives with how far it got. Silent off a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console_for(sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


# ── values as people read them ──


def show(value: object) -> str:
    """A value of a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"
    return str(value)


def cut(text: str, length: int) -> str:
    """The beginning of a text, for a cell; what follows is left out."""
    return text if len(text) <= length else f"{text[:length]}…"


def show_bytes(count: int) -> str:
    """A size: 1536 is `1.5 KiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < KIB:
            return f"{size:,.0f} {unit}" if unit == "B" or size == int(size) else f"{size:,.1f} {unit}"
        size /= KIB
    return f"{size:,.1f} TiB"


def show_seconds(seconds: float) -> str:
    """How long: 90 is `1.5 min`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def iso_time(timestamp: int | None) -> str | None:
    """A time as programs and `seek --to` read it."""
    if timestamp is None:
        return None
    at = datetime.fromtimestamp(timestamp / SECOND, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plural(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ── the terminal ──


@cache
def console_for(file: TextIO) -> "Console":
    """A console on this file. Where nobody looks, lines are as long as they are."""
    from rich.console import Console

    class Terminal(Console):
        """Leaves it to the program what to do when nobody reads any more; rich would end it on the spot."""

        def on_broken_pipe(self) -> None:
            raise

    width = None if file.isatty() else PLAIN_WIDTH
    return Terminal(file=file, width=width, markup=False, highlight=False, emoji=False)


def _text(parts: Iterable[tuple[str, str]]) -> "Text":
    from rich.text import Text

    pieces: list[Any] = [(clean(text), style) for text, style in parts]
    return Text.assemble(*pieces)
