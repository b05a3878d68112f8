"""Jobs under way while their processes are killed: a server that takes them, a supervisor, its workers, a feeder."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.cli.program import COMMAND, Program, environment
from tests.ports import free_port

PATIENCE_SECONDS = 60.0
TOGETHER = 5
AHEAD = 60
START_SECONDS_MAX = 30.0
EFFECT_BYTES = len("job000000\n")
SHARES = (("worker", 0.85), ("server", 0.1), ("supervisor", 0.05))
ROOT = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}


def job_name(number: int) -> str:
    return f"job{number:06d}"


class Fleet:
    """Whatever is killed is started again; `kills` counts the dead of each kind."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder = folder
        self._dice = dice
        self._port = free_port()
        self.effects = folder / "effects"
        self.effects.touch()
        (folder / "mark.sh").write_text('echo "$1" >> effects\nsleep 0.01\n')
        mark = {"argv": ["/bin/sh", "mark.sh", "{name}"], "parameters": {"name": {"type": "name"}}}
        (folder / "commands.json").write_text(json.dumps({"mark": {**mark, "cwd": str(folder)}}))
        made = Program(folder).expect(0, "token", "create", "feeder", "--scope", "jobs:submit", "--json").document()
        self._headers = {"authorization": f"Bearer {made['token']}"}
        self.kills = {kind: 0 for kind, _ in SHARES}
        self._server = self._start_server()
        self._supervisor = self._start_supervisor()

    def _start_server(self) -> "subprocess.Popen[bytes]":
        options = ("--port", str(self._port), "--auth", "token", "--job-commands", "commands.json")
        return self._start((*COMMAND, "serve", *options))

    def _start_supervisor(self) -> "subprocess.Popen[bytes]":
        command = (sys.executable, "-m", "tests.faults.forked_workers")
        return self._start((*command, "worker", "start", "--count", "4", "--concurrency", "3"))

    def _start(self, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self._folder, env=environment(ROOT), stdout=quiet, stderr=quiet)

    # ── killing ──

    def kill_one(self) -> None:
        """Kill a worker, the server or the supervisor, as the dice say; without a worker, the supervisor."""
        (kind,) = self._dice.choices([kind for kind, _ in SHARES], [share for _, share in SHARES])
        workers = self._workers() if kind == "worker" else []
        if workers:
            os.kill(self._dice.choice(workers), signal.SIGKILL)
        elif kind == "server":
            _kill(self._server)
            self._server = self._start_server()
        else:
            kind = "supervisor"
            _kill(self._supervisor)
            self._supervisor = self._start_supervisor()
        self.kills[kind] += 1

    def _workers(self) -> list[int]:
        """Workers that have opened the store; they are waited for as long as it may take to start one."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            found = Path(f"/proc/{self._supervisor.pid}/task/{self._supervisor.pid}/children").read_text().split()
            ready = [int(process) for process in found if _has_opened_the_store(process)]
            if ready:
                return ready
            time.sleep(0.02)
        return []

    def end(self) -> None:
        """End everything in good order."""
        for process in (self._server, self._supervisor):
            process.send_signal(signal.SIGTERM)
        for process in (self._server, self._supervisor):
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                _kill(process)

    # ── feeding ──

    def feed(self, count: int) -> threading.Thread:
        """Hand in so many jobs through the server, not many more than are done, each until it is certainly there."""
        thread = threading.Thread(target=self._feed, args=(count,), daemon=True)
        thread.start()
        return thread

    def _feed(self, count: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", headers=self._headers, timeout=10) as client:
            for start in range(0, count, TOGETHER):
                while start > self.effects.stat().st_size // EFFECT_BYTES + AHEAD:
                    time.sleep(0.01)
                names = [job_name(number) for number in range(start, min(start + TOGETHER, count))]
                while not _is_taken(client, names):
                    time.sleep(0.05)


def _is_taken(client: httpx.Client, names: list[str]) -> bool:
    """Whether the server says that the jobs are there: added now, or by a request whose answer was lost."""
    jobs = [{"id": name, "type": "command:mark", "kwargs": {"name": name}} for name in names]
    try:
        return client.post("/api/v1/jobs", json={"jobs": jobs}).status_code in (201, 409)
    except httpx.TransportError:
        return False


def _has_opened_the_store(process: str) -> bool:
    with suppress(OSError):
        return any(os.readlink(file).endswith(".db-wal") for file in Path(f"/proc/{process}/fd").iterdir())
    return False


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
