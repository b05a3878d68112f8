"""A real browser without a window, driven over its DevTools protocol: what pages show, and what is done in them."""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

PATIENCE_SECONDS = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and what it came to."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE_SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:500])

    def see(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def expect(self, expression: str, value: object) -> None:
        """Wait until an expression has a value."""
        expect(lambda: self.see(expression), value)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse here, move it there, let it go."""
        self._mouse("mousePressed", *begin)
        middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
        for place in (middle, end):
            self._mouse("mouseMoved", *place)
        self._mouse("mouseReleased", *end)

    def move(self, x: float, y: float) -> None:
        """Move the mouse, without a button."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Another window, and by day or by night."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """What it looks like."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


class Browser:
    """A browser that runs."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self._sockets = ExitStack()

    def open(self, url: str) -> Page:
        """A new page."""
        about = httpx.put(f"{self._address}/json/new?{url}", timeout=PATIENCE_SECONDS).json()
        page = Page(
            self._sockets.enter_context(connect(about["webSocketDebuggerUrl"], max_size=None, compression=None))
        )
        # A new page is an empty one first, which is complete, too.
        page.expect("location.href === 'about:blank' ? '' : document.readyState", "complete")
        return page

    def close(self) -> None:
        """Let go of its pages."""
        self._sockets.close()


def expect(look: Callable[[], object], value: object) -> None:
    """Wait until a look finds a value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := look()) != value:
        assert time.monotonic() < deadline, f"it is {found!r}, not {value!r}"
        time.sleep(0.05)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; skips where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed here: apt-get install chromium, or any Chrome on PATH")
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--user-data-dir={folder}", "--remote-debugging-port=0", "--window-size=1200,800", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        port = folder / "DevToolsActivePort"
        expect(lambda: port.exists() and port.read_text().count("\n") >= 1, True)
        browser = Browser(int(port.read_text().split()[0]))
        try:
            yield browser
        finally:
            browser.close()
    finally:
        # With its helpers, which are of its own process group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
