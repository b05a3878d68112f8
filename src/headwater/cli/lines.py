"""Lines from a file or a pipe, in batches: what one read brings is pushed together.

A file fills every batch. From a pipe, a slow producer's line goes out at once and a fast one's lines gather by
themselves while the last batch is on its way.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import NamedTuple

from headwater.errors import TooLarge

READ_BYTES = 1_048_576
BATCH_BYTES_MAX = 16 * 1_048_576


class Line(NamedTuple):
    """A line that is not blank, with its number."""

    number: int
    text: bytes


class Lines:
    """Reads a descriptor line by line, without a thread: Ctrl-C never has to wait for a producer that is silent."""

    def __init__(
        self, descriptor: int, *, batch_max: int, line_bytes_max: int, batch_bytes_max: int = BATCH_BYTES_MAX
    ) -> None:
        self._descriptor = descriptor
        self._batch_max = batch_max
        self._batch_bytes_max = batch_bytes_max
        self._line_bytes_max = line_bytes_max
        self._number = 0
        self.bytes_read = 0

    async def batches(self) -> AsyncIterator[list[Line]]:
        """Batches of lines, until the input ends."""
        rest = b""
        while chunk := await self._read():
            *complete, rest = (rest + chunk).split(b"\n")
            self._check_length(self._number + len(complete) + 1, rest)
            for batch in self._split(complete):
                yield batch
        for batch in self._split([rest]):
            yield batch

    def _split(self, texts: list[bytes]) -> list[list[Line]]:
        numbered = (Line(number, text.strip()) for number, text in enumerate(texts, self._number + 1))
        lines = [line for line in numbered if line.text]
        for line in lines:
            self._check_length(*line)
        self._number += len(texts)
        return self._gather(lines)

    def _gather(self, lines: list[Line]) -> list[list[Line]]:
        """Batches of no more lines and bytes than may go together; a line that is too long for that goes alone."""
        batches: list[list[Line]] = []
        size = 0
        for line in lines:
            size += len(line.text)
            if not batches or len(batches[-1]) >= self._batch_max or size > self._batch_bytes_max:
                batches.append([])
                size = len(line.text)
            batches[-1].append(line)
        return batches

    def _check_length(self, number: int, text: bytes) -> None:
        if len(text) > self._line_bytes_max:
            raise TooLarge(f"line {number}: a payload may have {self._line_bytes_max:,} bytes; this one has more")

    async def _read(self) -> bytes:
        await self._wait()
        chunk = os.read(self._descriptor, READ_BYTES)
        self.bytes_read += len(chunk)
        return chunk

    async def _wait(self) -> None:
        """Until there is something to read, or nothing more will come."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, readable.set)
        except PermissionError:
            # Files are always readable, so the kernel refuses to watch them.
            return
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)
