"""What Spark keeps of a query, as far as a sink needs it: where a micro-batch ends, and a note of our own beside it.

A sink is told where the checkpoint is, but only as a name. Where that names a folder that can be read as files, the
sink looks; elsewhere it knows nothing of the sources, and its own steps in the store are all it has.
"""

import json
import os
import re
from hashlib import sha256
from pathlib import Path

import msgspec

from headwater.errors import InvalidOption
from headwater.pipeline.planning import StreamOffset, offset_of
from headwater.stores.log_reader import Fingerprint

DESTINATION_FILE = "headwater-destination.json"
DIGEST_LENGTH = 12
# A version, then what Spark knows of the batch, then a line for each source.
LINES_BEFORE = 2


class Destination(msgspec.Struct, frozen=True):
    """Where a stream's records go: a store, and unless rows say it themselves a queue with its number, if it has one.

    `seen` is the end of the store's log when it was last pushed to, `step` the name of the work whose steps the pushes
    are, `repeated` the last micro-batch that came again after it was pushed.
    """

    store: str
    database: str
    queue: str = ""
    number: int | None = None
    seen: Fingerprint | None = None
    step: str = ""
    repeated: int | None = None


class Checkpoint:
    """The folder of a query's checkpoint; without one, nothing is known."""

    def __init__(self, location: str) -> None:
        self._folder = _folder_of(location)

    def lines(self, batch: int) -> list[str]:
        """What Spark has written of each source's end in a micro-batch."""
        if self._folder is None:
            return []
        try:
            text = (self._folder / "offsets" / str(batch)).read_text()
        except OSError:
            return []
        return text.splitlines()[LINES_BEFORE:]

    def sources(self, batch: int) -> list[StreamOffset]:
        """The ends of a micro-batch in those of its sources that are ours."""
        return [offset for line in self.lines(batch) if (offset := _ours(line)) is not None]

    def digest(self, batch: int) -> str:
        """Tells micro-batches of one number apart by where they end; empty when nothing is known."""
        lines = self.lines(batch)
        places = [line if (offset := _ours(line)) is None else [offset.lsn, offset.positions] for line in lines]
        return sha256(json.dumps(places).encode()).hexdigest()[:DIGEST_LENGTH] if lines else ""

    def destination(self) -> Destination | None:
        """Where the query has pushed to, None when it has not yet, or nothing is known."""
        if self._folder is None:
            return None
        try:
            kept = (self._folder / DESTINATION_FILE).read_bytes()
        except OSError:
            return None
        try:
            return msgspec.json.decode(kept, type=Destination)
        except msgspec.MsgspecError as error:
            raise InvalidOption(f"{self._folder / DESTINATION_FILE} cannot be read: {error}") from error

    def note_destination(self, destination: Destination) -> None:
        """Remember where the query pushes to; whole or not at all."""
        if self._folder is None or not self._folder.is_dir():
            return
        file = self._folder / DESTINATION_FILE
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(destination))
        fresh.replace(file)


def _folder_of(location: str) -> Path | None:
    if not location:
        return None
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    # Spark takes every character for itself: `%20` is no blank, and nothing begins behind `?` or `#`.
    found = re.fullmatch(r"file:(?://(?:localhost)?)?(/.*)", location, re.DOTALL)
    return Path(found[1]) if found else None


def _ours(line: str) -> StreamOffset | None:
    try:
        return offset_of(json.loads(line))
    except (ValueError, InvalidOption):
        return None
