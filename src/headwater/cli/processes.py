"""Several processes on one port: started, waited for, replaced when they die, and stopped together."""

import ctypes
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
# One that dies again and again is not started more often than this.
RESTART_SECONDS = 1.0
PR_SET_PDEATHSIG = 1


class Family:
    """Processes that do the same. `run` is called in each with its number and what to call once it is ready."""

    def __init__(self, count: int, run: Callable[[int, Callable[[], None]], int]) -> None:
        self._count = count
        self._run = run
        self._members: dict[int, int] = {}
        self._started_at: dict[int, float] = {}
        self._ended_by: signal.Signals | None = None
        self._ready_end, self._telling_end = os.pipe()

    def run(self, on_ready: Callable[[], None]) -> int:
        """Start all, say when all are ready, and replace those that die until a signal comes. The exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for index in range(self._count):
            self._start(index)
        code = self._wait_until_ready()
        if code is None:
            on_ready()
            code = self._keep_up()
        return 128 + signal.SIGINT if code == 0 and self._ended_by is signal.SIGINT else code

    # ── starting ──

    def _start(self, index: int) -> None:
        # What is in a buffer now would be written by both.
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        member = os.fork()
        if member:
            self._members[member] = index
            self._started_at[index] = time.monotonic()
            return
        code = 1
        try:
            code = self._be(index, parent)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _be(self, index: int, parent: int) -> int:
        """Be one of them: apart from the terminal's Ctrl-C, which reaches the parent, and not without the parent."""
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                return 1
        return self._run(index, lambda: self._tell_ready(index))

    def _tell_ready(self, index: int) -> None:
        os.write(self._telling_end, bytes([index % 256]))

    def _wait_until_ready(self) -> int | None:
        """None once all are ready; the exit code when one ended before."""
        ready = 0
        while ready < self._count:
            readable, _, _ = select.select([self._ready_end], [], [], LOOK_SECONDS)
            if readable:
                ready += len(os.read(self._ready_end, 4_096))
            member, status = os.waitpid(-1, os.WNOHANG)
            if member:
                self._members.pop(member, None)
                self._send(signal.SIGTERM)
                self._wait_for_all()
                return os.waitstatus_to_exitcode(status) or 1
        return None

    # ── keeping up ──

    def _keep_up(self) -> int:
        while self._members:
            member, status = os.wait()
            index = self._members.pop(member, None)
            if self._ended_by is None and index is not None:
                log.error("process %d ended with %d; another one takes its place", index, _code(status))
                time.sleep(max(RESTART_SECONDS - (time.monotonic() - self._started_at[index]), 0))
                self._start(index)
        return 0

    def _wait_for_all(self) -> None:
        while self._members:
            member, _ = os.wait()
            self._members.pop(member, None)

    # ── stopping ──

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._ended_by = signal.Signals(number)
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for member in self._members:
            try:
                os.kill(member, number)
            except ProcessLookupError:
                log.info("process %d had ended already", member)


def _code(status: int) -> int:
    return os.waitstatus_to_exitcode(status)


def hold_port(host: str, port: int) -> socket.socket:
    """A port that several processes of this user can share; held, so that a free one stays ours."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    holder = socket.socket(family, kind, protocol)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(address)
    except BaseException:
        holder.close()
        raise
    return holder
