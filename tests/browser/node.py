"""`headwater.js` in node, driven from here as a page would be: what it sends, what it keeps, what it tells."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.doors import browser
from tests.browser.chromium import PATIENCE_SECONDS, expect

CLIENT = Path(browser.__file__).parent
DRIVER = Path(__file__).parent / "driver.mjs"


class Page:
    """A program that has the client."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._number = 0

    def ask(self, expression: str) -> dict[str, Any]:
        """What came of an expression: its `value`, or the code of an `error`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        self._process.stdin.write(json.dumps({"id": self._number, "expression": expression}) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert told["id"] == self._number
        return told

    def see(self, expression: str) -> Any:
        """The value of an expression; a promise is waited for."""
        told = self.ask(expression)
        assert "error" not in told, told
        return told["value"]

    def do(self, statements: str) -> Any:
        """Run statements that may wait; what they return."""
        return self.see(f"(async () => {{ {statements} }})()")

    def refusal(self, expression: str) -> str:
        """The code with which an expression fails."""
        told = self.ask(expression)
        assert "error" in told, told
        return str(told["error"])

    def expect(self, expression: str, value: object) -> None:
        """Wait until an expression has a value."""
        expect(lambda: self.see(expression), value)


def place_client(folder: Path) -> Path:
    """The client as it is served, for programs in a folder."""
    shutil.copy(CLIENT / "headwater.js", folder)
    shutil.copy(CLIENT / "headwater.d.ts", folder)
    shutil.copytree(CLIENT / "headwater", folder / "headwater")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    return folder


@contextmanager
def page_in_node(folder: Path) -> Iterator[Page]:
    """A page without a browser."""
    place_client(folder)
    program = shutil.copy(DRIVER, folder)
    command = ["node", "--experimental-websocket", "--no-warnings", str(program)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Page(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)
