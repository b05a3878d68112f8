"""The one line that matters: what went wrong in Spark, as an error of ours.

A failure in a task reaches the driver as pages of Java and Python frames. Somewhere in them stands what a person can do
something about: an error of Headwater, a full disk, a missing file. Spark's own log keeps the rest.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater import errors
from headwater.errors import ArchiveFull, FlowError, HeadwaterError

# A plan that is shown with an error may hold the words of one that did not happen: there an expression follows.
_ours = re.compile(r"headwater\.(?:\w+\.)*errors\.(?P<kind>\w+): (?P<message>(?!, concat\()[^\n]*)")
_full = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_cause = re.compile(r"^(?:Caused by: |: )?(?:[\w$]+\.)+(?P<kind>\w*(?:Exception|Error)): (?P<message>.+)$", re.M)
# What a program in a worker of Python raised: the line below its frames.
_raised = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<said>\w.*)$", re.M)
LINE_LENGTH_MAX = 400


@contextmanager
def told_in_one_line(log: Path | None = None) -> Iterator[None]:
    """Errors of Spark inside the block leave it as errors of ours."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise translate(str(error), log) from error


def translate(text: str, log: Path | None = None) -> HeadwaterError:
    """What pages of frames come to."""
    if found := list(_ours.finditer(text)):
        return _error(found[-1]["kind"], found[-1]["message"])
    where = f"; Spark's log is {log}" if log is not None else ""
    if full := _full.search(text):
        return ArchiveFull(f"{full[0].lower()}: nothing half-written is visible; free some and run this again{where}")
    return FlowError(f"Spark failed: {_line(text)}{where}")


def _error(kind: str, message: str) -> HeadwaterError:
    known = getattr(errors, kind, FlowError)
    return known(message) if issubclass(known, HeadwaterError) else FlowError(message)


def _line(text: str) -> str:
    """The innermost cause that a text names, or its first line."""
    causes = [found["said"] for found in _raised.finditer(text)]
    causes = causes or [f"{found['kind']}: {found['message']}" for found in _cause.finditer(text)]
    plain = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = causes[-1] if causes else (plain[0] if plain else "it does not say why")
    return chosen[:LINE_LENGTH_MAX]
