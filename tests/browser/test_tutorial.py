"""docs/live-page.md, followed to the letter in a real browser: its commands, its page, its program."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.browser.chromium import PATIENCE_SECONDS, chromium, expect
from tests.ports import free_port

TUTORIAL = Path(__file__).parents[2] / "docs" / "live-page.md"
SHOWN = "[...document.querySelectorAll('li')].map(item => item.textContent.trim())"


def samples(kind: str, ports: dict[str, str]) -> list[str]:
    """What stands in the fences of a kind, at ports that are free."""
    found = re.findall(rf"^```{kind}[^\n]*\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(r"\b(6632|8000)\b", lambda port: ports[port[0]], text) for text in found]


@contextmanager
def running(command: str, folder: Path, url: str) -> Iterator[None]:
    """A command of the tutorial, once it answers."""
    program, *options = shlex.split(command)
    path = {"python": [sys.executable], "headwater": [sys.executable, "-m", "headwater.cli"]}[program]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*path, *options], cwd=folder, stdout=quiet, stderr=quiet)
    try:
        expect(lambda: process.poll() is None and answers(url), True)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=PATIENCE_SECONDS).is_success
    except httpx.TransportError:
        return False


def test_the_guest_book_is_what_the_tutorial_says(tmp_path: Path) -> None:
    ports = {"6632": str(free_port()), "8000": str(free_port())}
    serve_store, serve_page = samples("sh", ports)
    [page] = samples("html", ports)
    [program] = samples("python", ports)
    (tmp_path / "index.html").write_text(page)
    server, site = (f"http://127.0.0.1:{port}" for port in ports.values())

    with ExitStack() as stack:
        browser = stack.enter_context(chromium(tmp_path / "profile"))
        stack.enter_context(running(serve_page, tmp_path, site))
        with running(serve_store, tmp_path, f"{server}/health"):
            one, other = browser.open(site), browser.open(site)
            for text in ("Ada was here", "buy spam"):
                one.see(f"void (document.querySelector('input').value = '{text}')")
                one.see("document.querySelector('button').click()")
                other.expect(f"{SHOWN}.at(-1)", text)
            other.see("document.querySelector('li').click()")
            one.expect(SHOWN, ["Ada was here ♥", "buy spam"])
            subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)
            for window in (one, other):
                window.expect(SHOWN, ["Ada was here ♥", "Hello from Python"])
        with running(serve_store, tmp_path, f"{server}/health"):
            one.see("void (document.querySelector('input').value = 'Back again')")
            one.see("document.querySelector('button').click()")
            for window in (one, other):
                window.expect(SHOWN, ["Ada was here ♥", "Hello from Python", "Back again"])
        assert one.errors == other.errors == []
