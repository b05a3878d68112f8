"""Runs `queuectl` in a folder of its own, here or as processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.program import Ended, Program, environment

QUEUECTL = (sys.executable, "-c", "import sys; from headwater.cli import queuectl; sys.exit(queuectl())")


class Queuectl(Program):
    """`queuectl`, in one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.command = QUEUECTL

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run a command to its end, here: `queuectl` is `headwater jobs`."""
        return super().run("jobs", *arguments, **variables)

    @contextmanager
    def workers(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Workers that run until the block ends, and then end in good order."""
        process = subprocess.Popen(
            [*self.command, "worker", "start", *arguments],
            cwd=self.folder,
            env=environment({"PYTHONPATH": str(self.folder)}),
            stdout=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()


def is_running(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(process, 0)
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
