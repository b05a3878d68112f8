"""The shared canvas in a real browser: two pages on two servers, over a file and over PostgreSQL; one server dies."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import postgres_server
from tests.browser.chromium import Browser, Page, chromium, expect
from tests.scenarios.servers import Server

COUNT = "document.querySelectorAll('#shapes > *').length"
STATE = "document.querySelector('#state').dataset.state"
PEOPLE = "document.querySelectorAll('#people li').length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def in_a_file(folder: Path) -> str:
    return str(folder / "canvas.db")


def on_postgresql(folder: Path) -> str:
    return postgres_server.server().address(postgres_server.server().new_schema())


@pytest.fixture(params=[in_a_file, on_postgresql], ids=lambda place: place.__name__)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    address = request.param(tmp_path)
    pair = Server(address), Server(address)
    try:
        yield pair
    finally:
        for server in pair:
            server.stop()


def open_both(browser: Browser, servers: tuple[Server, Server]) -> tuple[Page, Page]:
    """Two people at the same canvas, each on a server of their own, who see each other."""
    pages = [browser.open(f"{server.url}/demo/canvas?name={name}") for server, name in zip(servers, "AB", strict=True)]
    for page in pages:
        page.expect(STATE, "open")
        page.expect(PEOPLE, 2)
    return pages[0], pages[1]


def outlines(page: Page) -> object:
    """Every shape as it is shown."""
    return json.loads(
        page.see(
            "JSON.stringify([...document.querySelectorAll('#shapes > *')]"
            ".map(shape => [shape.dataset.shape, shape.tagName, "
            "...['x', 'y', 'width', 'height', 'cx', 'cy', 'd'].map(name => shape.getAttribute(name))]).sort())"
        )
    )


def test_what_is_drawn_on_one_server_is_seen_on_the_other(browser: Browser, servers: tuple[Server, Server]) -> None:
    one, other = open_both(browser, servers)
    one.drag((300, 300), (500, 420))
    other.expect(COUNT, 1)
    other.see("document.querySelector('[data-tool=ellipse]').click()")
    other.drag((600, 400), (700, 500))
    one.expect(COUNT, 2)
    assert outlines(one) == outlines(other)
    one.see("document.querySelector('[data-tool=select]').click()")
    one.drag((400, 360), (450, 400))
    one.press("ArrowRight")
    settled = outlines(one)
    expect(lambda: outlines(other), settled)
    one.press("Delete")
    other.expect(COUNT, 1)
    assert one.errors == other.errors == []


def test_cursors_and_who_is_there_are_seen_and_go_again(browser: Browser, servers: tuple[Server, Server]) -> None:
    one, other = open_both(browser, servers)
    one.move(320, 330)
    other.expect("document.querySelectorAll('#cursors g').length", 1)
    other.expect("document.querySelector('#cursors text').textContent", "A")
    one.call("Page.navigate", url="about:blank")
    other.expect(PEOPLE, 1)
    other.expect("document.querySelectorAll('#cursors g').length", 0)


def test_a_page_whose_server_dies_comes_back_and_misses_nothing(
    browser: Browser, servers: tuple[Server, Server]
) -> None:
    one, other = open_both(browser, servers)
    one.drag((300, 300), (500, 420))
    other.expect(COUNT, 1)
    servers[1].kill()
    other.expect(f"({STATE}) !== 'open'", True)
    for step in range(5):
        one.drag((200 + 40 * step, 500), (230 + 40 * step, 560))
    # What is drawn without a server is told when there is one again.
    other.drag((700, 300), (760, 360))
    one.expect(COUNT, 6)
    servers[1].start()
    other.expect(STATE, "open")
    other.expect(COUNT, 7)
    one.expect(COUNT, 7)
    assert outlines(one) == outlines(other)
    assert one.errors == other.errors == []


@pytest.mark.parametrize("servers", [in_a_file], indirect=True)
def test_what_strangers_say_of_shapes_touches_nothing_but_shapes(
    browser: Browser, servers: tuple[Server, Server]
) -> None:
    page = browser.open(f"{servers[0].url}/demo/canvas")
    page.expect(STATE, "open")
    elements = (
        "JSON.stringify([...document.querySelectorAll('[id]')].map(one => [one.id, one.tagName, one.style.cssText]))"
    )
    before = page.see(elements)
    shape = {"kind": "rectangle", "x": 1, "y": 2, "w": 3, "h": 4}
    said: list[tuple[str, object]] = [("object-delete", None), ("object-create", None), ("state", None), ("state", {})]
    for name in ("canvas", "shapes", "delete", "hint", "state", "people"):
        said += [("object-create", {**shape, "id": name}), ("object-update", {"id": name, "x": 9})]
        said += [("object-delete", {"id": name})]
    said += [("object-create", {**shape, "id": "a", "x": "<b>"}), ("object-create", {**shape, "id": 7})]
    said += [("object-create", {**shape, "id": "b", "kind": "pen", "points": "M0 0"})]
    said += [("state", {"gone": ["canvas", 7, None], "shapes": [None, 7, {**shape, "id": "hint", "kind": "script"}]})]
    said += [("object-create", {**shape, "id": "last"})]
    for type, data in said:
        answer = httpx.post(
            f"{servers[1].url}/api/v1/rooms/canvas-1/messages", json={"type": type, "data": data}, timeout=60
        )
        assert answer.status_code == 201
    page.expect(COUNT, 1)
    assert page.see(elements) == before
    assert page.errors == []


def test_who_comes_later_sees_what_is_kept_no_more(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_MESSAGE_TTL", "1")
    monkeypatch.setenv("HEADWATER_CLEANUP_INTERVAL", "1")
    server = Server(tmp_path / "canvas.db")
    try:
        one = browser.open(f"{server.url}/demo/canvas")
        one.expect(STATE, "open")
        one.drag((300, 300), (500, 420))
        one.expect(COUNT, 1)
        expect(lambda: kept(server), 0)
        # Nobody but the page that drew it has the shape now.
        other = browser.open(f"{server.url}/demo/canvas")
        other.expect(COUNT, 1)
        assert outlines(one) == outlines(other)
    finally:
        server.stop()


def kept(server: Server) -> int | None:
    """How many messages the room has; None before the first."""
    found = httpx.get(f"{server.url}/api/v1/rooms/canvas-1/messages", timeout=60).json()
    return len(found["messages"]) if found.get("offset", -1) >= 0 else None


@pytest.mark.parametrize("servers", [in_a_file], indirect=True)
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)])
def test_everything_is_within_reach_at_any_width(
    browser: Browser, servers: tuple[Server, Server], tmp_path: Path, width: int, dark: bool
) -> None:
    page = browser.open(f"{servers[0].url}/demo/canvas?name=Ada")
    page.resize(width, 800, dark=dark)
    page.expect(STATE, "open")
    page.drag((100, 400), (200, 480))
    page.expect(COUNT, 1)
    assert page.see("document.documentElement.scrollWidth <= innerWidth")
    assert page.see(
        "[...document.querySelectorAll('button')].every(button => button.getBoundingClientRect().right <= innerWidth)"
    )
    page.screenshot(Path(os.environ.get("HEADWATER_SCREENSHOTS") or tmp_path) / f"canvas-{width}-{dark}.png")
    assert page.errors == []
