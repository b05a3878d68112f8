"""A program of the scenarios as the test holds it: started, listened to, told what to do, killed."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0


class Program:
    """One process. Use it with `async with`: whatever happens in the test, it does not outlive it."""

    def __init__(self, program: str, path: Path, **settings: Any) -> None:
        self._command = ["-m", "tests.scenarios.programs", program, str(path), json.dumps(settings)]

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=pipe, stdout=pipe, cwd=ROOT, limit=64 * 1024 * 1024
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.kill()
        await self._process.communicate()

    async def hear(self) -> dict[str, Any]:
        """The next event that the program tells."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), WAIT_SECONDS)
        assert line, "the program ended"
        event: dict[str, Any] = json.loads(line)
        return event

    async def hear_ready(self) -> None:
        """Until the program has opened the file."""
        assert (await self.hear()) == {"ready": True}

    def say(self, line: str = "go") -> None:
        """Give the program an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def end(self) -> None:
        """No more orders; the program must end by itself, and well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.communicate(), WAIT_SECONDS)
        assert self._process.returncode == 0

    def kill(self) -> None:
        """End it as a power switch would."""
        self._process.kill()

    async def gone(self) -> None:
        """Until the process is no more."""
        await asyncio.wait_for(self._process.wait(), WAIT_SECONDS)
