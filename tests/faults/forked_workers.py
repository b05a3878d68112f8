"""`queuectl` whose supervisor forks its workers from a process that has everything imported, instead of starting them.

A worker is then there in hundredths of a second, so that thousands can be killed. Everything else is as ever: the same
supervisor, the same workers, each a process of its own and a child of the supervisor.
"""

import importlib
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

from headwater.cli import main, queuectl
from headwater.worker import processes, supervisor

_number = struct.Struct("i")
PRELOADED = ("headwater.app", "headwater.cli.workers", "headwater.worker.worker", "uvloop")


class Nursery:
    """A process with one thread and nothing open, which forks a worker whenever it is sent arguments."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        asking, self._asking = os.pipe()
        self._answers, answering = os.pipe()
        processes.adopt_orphans()
        self.process = os.fork()
        if not self.process:
            os.close(self._asking)
            processes.end_with_parent(signal.SIGKILL, self._parent)
            self._serve(asking, answering)
        os.close(asking)
        os.close(answering)

    def start(self, arguments: list[str]) -> int:
        """A new worker; its process."""
        os.write(self._asking, "\0".join(arguments).encode())
        return int(_number.unpack(os.read(self._answers, _number.size))[0])

    def _serve(self, asking: int, answering: int) -> None:
        while request := os.read(asking, 65_536):
            told, telling = os.pipe()
            between = os.fork()
            if not between:
                # Whoever is between dies at once, and its child becomes the supervisor's, who adopts orphans.
                between = os.getpid()
                worker = os.fork()
                if worker:
                    os.write(telling, _number.pack(worker))
                    os._exit(0)
                self._become_worker(between, request.decode().split("\0"))
            os.waitpid(between, 0)
            os.write(answering, os.read(told, _number.size))
            os.close(told)
            os.close(telling)
        os._exit(0)

    def _become_worker(self, between: int, arguments: list[str]) -> None:
        os.setpgid(0, 0)
        os.closerange(3, 256)
        while (parent := os.getppid()) == between:
            os.sched_yield()
        if parent != self._parent:
            os._exit(0)  # The supervisor was killed meanwhile, and somebody else has adopted us.
        code = 1
        try:
            sys.argv = ["headwater", *arguments]
            code = int(main() or 0)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)


class Forked:
    """What the supervisor needs of a worker that it has started."""

    def __init__(self, arguments: list[str], **_: object) -> None:
        self.pid = nursery.start(arguments[arguments.index("headwater.cli") + 1 :])

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def kill_strays(known: set[int]) -> int:
    return processes.kill_strays(known | {nursery.process})


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    nursery = Nursery()
    starting = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)
    # Whoever is killed every second is started again no later than whoever is killed once.
    vars(supervisor).update(subprocess=starting, kill_strays=kill_strays, RESTART_SECONDS_MAX=0.1)
    sys.exit(queuectl())
