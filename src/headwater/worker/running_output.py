"""What calls print is told while they run: together, every so often."""

import asyncio
from collections.abc import Callable, Mapping

from headwater.log.job_operations import Note
from headwater.model.job import JobNumber
from headwater.worker.call_reports import Call
from headwater.worker.capture import Capture

OUTPUT_PAUSE_SECONDS = 0.5


class RunningOutput:
    """The output of the calls of one runner."""

    def __init__(self, calls: Mapping[JobNumber, Call], bytes_max: int, tell: Callable[[Note], None]) -> None:
        self._calls = calls
        self._bytes_max = bytes_max
        self._tell = tell
        self._printed: set[JobNumber] = set()
        self._telling: asyncio.TimerHandle | None = None

    def add(self, call: Call, text: str) -> None:
        """A call has printed something."""
        if call.output is None:
            call.output = Capture(self._bytes_max)
        call.output.add(text.encode())
        self._printed.add(call.job.number)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(OUTPUT_PAUSE_SECONDS, self._tell_all)

    def _tell_all(self) -> None:
        """A call that runs for long shows its output while it does."""
        self._telling = None
        printed, self._printed = self._printed, set()
        for number in printed:
            call = self._calls.get(number)
            if call is not None and call.output is not None:
                self._tell(Note(number=number, token=call.job.token, output=call.output.text()))
