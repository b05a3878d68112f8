"""What the process of functions writes past its streams: what programs print that a function starts, and libraries that
write to the descriptors themselves. It is foreign text, and goes where the worker's own output goes."""

import asyncio
import codecs
import os
import subprocess
import sys
from contextlib import suppress

from headwater.model.terminal import clean_lines

READ_BYTES = 65_536


class Overheard:
    """Passes on what comes out of a process, without anything that would steer a terminal."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(self._stream.fileno(), False)
        asyncio.get_running_loop().add_reader(self._stream.fileno(), self._read)

    def _read(self) -> None:
        """What there is now; a bit at a time, so that one that prints for ever holds nobody up."""
        if not self._pass_on():
            asyncio.get_running_loop().remove_reader(self._stream.fileno())

    def close(self) -> None:
        """Pass on what it left; who still holds the other end is not waited for."""
        asyncio.get_running_loop().remove_reader(self._stream.fileno())
        with suppress(BlockingIOError):
            self._pass_on()
        self._stream.close()

    def _pass_on(self) -> bool:
        chunk = os.read(self._stream.fileno(), READ_BYTES)
        # Nobody may look at it: a worker goes on without its terminal.
        with suppress(OSError, ValueError):
            sys.stdout.write(clean_lines(self._decoder.decode(chunk, final=not chunk)))
            sys.stdout.flush()
        return bool(chunk)
