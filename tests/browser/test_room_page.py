"""The shared pages of docs/rooms.md and docs/browser.md, as somebody new would make them: saved, delivered by a web
server of their own, opened twice; and the server of the rooms ends and comes back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, chromium
from tests.docs.samples import find_fences
from tests.ports import free_port
from tests.scenarios.servers import Server

DOCUMENTS = Path(__file__).parents[2] / "docs"
SAID = "[...document.querySelectorAll('#said li')].map(line => line.textContent).join(' ')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


class Silent(SimpleHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def delivered(folder: Path, port: int) -> Iterator[str]:
    """What `python -m http.server` does."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def say(text: str) -> str:
    return f"(() => {{ const text = document.querySelector('#text'); text.value = '{text}'; text.onchange(); }})()"


# With headwater.js the page is ready when its module has run: what is said before it is connected waits.
@pytest.mark.parametrize(
    ("document", "is_ready"),
    [("rooms.md", "socket.readyState === 1"), ("browser.md", "document.querySelector('#text').onchange !== null")],
)
def test_the_page_of_the_tutorial_is_shared_and_outlives_its_server(
    browser: Browser, tmp_path: Path, document: str, is_ready: str
) -> None:
    text = (DOCUMENTS / document).read_text()
    (page,) = (fence.text for fence in find_fences(text) if fence.words[:1] == ("html",))
    assert "127.0.0.1:6632" in page
    folder = tmp_path / "page"
    folder.mkdir()
    port = free_port()
    server = Server(tmp_path / "page.db", "--allowed-origins", f"http://127.0.0.1:{port}")
    try:
        (folder / "index.html").write_text(page.replace("127.0.0.1:6632", server.url.removeprefix("http://")))
        with delivered(folder, port) as url:
            one, two = browser.open(url), browser.open(url)
            for page_open in (one, two):
                page_open.expect(is_ready, True)
            one.see(say("hello"))
            two.expect(SAID, "hello")
            two.see(say("you"))
            one.expect(SAID, "hello you")
            server.kill()
            server.start()
            for page_open in (one, two):
                page_open.expect(is_ready, True)
            one.see(say("again"))
            for page_open in (one, two):
                page_open.expect(SAID, "hello you again")
    finally:
        server.stop()
