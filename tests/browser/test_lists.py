"""The two to-do lists in a real browser: two pages on two servers over one store, and a server that dies."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import sync
from tests.browser.chromium import Browser, Page, chromium, expect
from tests.browser.npm import CACHE, INSTALL_SECONDS_MAX, needs_node
from tests.scenarios.servers import Server

ROOT = Path(__file__).parents[2]
STATE = "document.querySelector('#state').dataset.state"
# What stands in the list, from top to bottom.
SHOWN = (
    "[...document.querySelectorAll('#items li')]"
    ".map(row => (row.querySelector('.done').checked ? '[x] ' : '[ ] ') + row.querySelector('.words').value)"
)
PATIENT = pytest.mark.timeout(INSTALL_SECONDS_MAX + 300)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    pair = Server(tmp_path / "lists.db"), Server(tmp_path / "lists.db")
    try:
        yield pair
    finally:
        for server in pair:
            server.stop()


@pytest.fixture
def rxdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """RxDB as `script/rxdb` brings it, for servers that are started after this."""
    place = CACHE / "rxdb-module"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    if not (place / "headwater" / "rxdb.js").exists():
        subprocess.run([ROOT / "script" / "rxdb"], check=True, timeout=INSTALL_SECONDS_MAX, env=os.environ)


def open_both(browser: Browser, servers: tuple[Server, Server], page: str) -> tuple[Page, Page]:
    one, other = (browser.open(f"{server.url}/demo/{page}") for server in servers)
    for each in (one, other):
        each.expect(STATE, "open")
    return one, other


def add(page: Page, text: str) -> None:
    """Type something, and press the button."""
    page.see(f"void (document.querySelector('#text').value = {json.dumps(text)})")
    page.see("document.querySelector('#new button').click()")


def row(text: str) -> str:
    """The row with a text, as an expression."""
    return (
        "[...document.querySelectorAll('#items li')]"
        f".find(row => row.querySelector('.words').value === {json.dumps(text)})"
    )


def tick(page: Page, text: str) -> None:
    page.see(f"{row(text)}.querySelector('.done').click()")


def rename(page: Page, text: str, new: str) -> None:
    words = f"{row(text)}.querySelector('.words')"
    page.see(
        f"(words => {{ words.value = {json.dumps(new)}; words.dispatchEvent(new Event('change')); void 0; }})({words})"
    )


def remove(page: Page, text: str) -> None:
    page.see(f"{row(text)}.querySelector('.remove').click()")


# ── on a live query alone ──


def test_what_is_written_on_one_server_is_seen_on_the_other(browser: Browser, servers: tuple[Server, Server]) -> None:
    one, other = open_both(browser, servers, "todo")
    add(one, "Milk")
    other.expect(SHOWN, ["[ ] Milk"])
    add(other, "Bread")
    one.expect(SHOWN, ["[ ] Milk", "[ ] Bread"])
    tick(one, "Milk")
    rename(other, "Bread", "Rye bread")
    for page in (one, other):
        page.expect(SHOWN, ["[x] Milk", "[ ] Rye bread"])
        page.expect("document.querySelector('#count').textContent", "1 of 2 to do")
    one.see("document.querySelector('[data-filter=open]').click()")
    assert one.see(SHOWN) == ["[ ] Rye bread"]
    other.see("document.querySelector('#clear').click()")
    other.expect(SHOWN, ["[ ] Rye bread"])
    tick(other, "Rye bread")
    one.expect(SHOWN, [])
    remove(other, "Rye bread")
    one.expect("document.querySelector('#count').textContent", "")
    assert one.errors == other.errors == []


def test_pages_come_to_the_same_list_when_a_server_dies(browser: Browser, servers: tuple[Server, Server]) -> None:
    one, other = open_both(browser, servers, "todo")
    for text in ("Milk", "Bread", "Eggs"):
        add(one, text)
        one.expect(f"{row(text)} !== undefined", True)
    other.expect(SHOWN, ["[ ] Milk", "[ ] Bread", "[ ] Eggs"])
    servers[1].kill()
    other.expect(f"({STATE}) !== 'open'", True)
    tick(one, "Milk")
    remove(one, "Bread")
    add(one, "Salt")
    one.expect(SHOWN, ["[x] Milk", "[ ] Eggs", "[ ] Salt"])
    # Without a server nothing is saved, and the page says so; what was typed is still there.
    add(other, "Tea")
    other.expect("document.querySelector('#notice').textContent", "Not saved: there is no connection.")
    assert other.see("document.querySelector('#text').value") == "Tea"
    servers[1].start()
    other.expect(SHOWN, ["[x] Milk", "[ ] Eggs", "[ ] Salt"])
    other.see("document.querySelector('#new button').click()")
    for page in (one, other):
        page.expect(SHOWN, ["[x] Milk", "[ ] Eggs", "[ ] Salt", "[ ] Tea"])
    assert one.errors == other.errors == []


def test_who_writes_over_the_text_of_another_is_told(
    browser: Browser, servers: tuple[Server, Server], tmp_path: Path
) -> None:
    one = browser.open(f"{servers[0].url}/demo/todo")
    one.expect(STATE, "open")
    add(one, "Milk")
    one.expect(SHOWN, ["[ ] Milk"])
    with sync.open(str(tmp_path / "lists.db")) as store:
        todos = store.collection("lists/demo/todos")
        (found,) = todos.query()
        # As if the change of the other were still on its way to this page.
        one.see("void (globalThis.words = document.querySelector('#items .words'), words.focus())")
        one.see("void (words.value = 'Oat milk')")
        one.see("void (globalThis.WebSocket.prototype.send = () => {})")
        servers[0].kill()
        todos.update(found.id, {"text": "Goat milk"})
        one.expect(f"({STATE}) !== 'open'", True)
        servers[0].start()
        expect(lambda: one.see("fetch('/health').then(answer => answer.ok, () => false)"), True)
        one.see("void words.dispatchEvent(new Event('change'))")
        one.expect("document.querySelector('#notice').textContent", "Somebody else changed it first.")
        now = todos.get(found.id)
        assert now is not None
        assert now.data["text"] == "Goat milk"


# ── offline first ──


@PATIENT
@needs_node
def test_what_is_done_offline_arrives_and_conflicts_are_resolved(
    browser: Browser, rxdb: None, servers: tuple[Server, Server], tmp_path: Path
) -> None:
    one, other = open_both(browser, servers, "offline")
    add(one, "Milk")
    other.expect(SHOWN, ["[ ] Milk"])
    add(other, "Bread")
    one.expect(SHOWN, ["[ ] Milk", "[ ] Bread"])
    servers[1].kill()
    other.expect(f"({STATE}) !== 'open'", True)
    add(other, "Tea")
    remove(other, "Bread")
    tick(other, "Milk")
    other.expect(SHOWN, ["[x] Milk", "[ ] Tea"])
    # Meanwhile somebody else changes the same item: what each of them touched is kept.
    rename(one, "Milk", "Oat milk")
    one.expect(SHOWN, ["[ ] Oat milk", "[ ] Bread"])
    with sync.open(str(tmp_path / "lists.db")) as store:
        todos = store.collection("lists/demo/todos")
        expect(lambda: sorted(str(item.data["text"]) for item in todos.query()), ["Bread", "Oat milk"])
        # The page opens without its server, and has everything.
        other.call("Page.reload")
        other.expect(f"document.readyState === 'complete' ? {SHOWN} : []", ["[x] Milk", "[ ] Tea"])
        servers[1].start()
        for page in (one, other):
            page.expect(SHOWN, ["[x] Oat milk", "[ ] Tea"])
        expect(
            lambda: sorted((str(item.data["text"]), item.data["done"]) for item in todos.query()),
            [("Oat milk", True), ("Tea", False)],
        )
    assert one.errors == other.errors == []


@PATIENT
@needs_node
def test_the_button_parts_a_page_from_its_server_and_brings_it_back(
    browser: Browser, rxdb: None, servers: tuple[Server, Server]
) -> None:
    one, other = open_both(browser, servers, "offline?list=button")
    one.see("document.querySelector('#network').click()")
    one.expect(STATE, "closed")
    add(one, "Milk")
    add(other, "Bread")
    one.expect(SHOWN, ["[ ] Milk"])
    other.expect(SHOWN, ["[ ] Bread"])
    one.see("document.querySelector('#network').click()")
    for page in (one, other):
        page.expect(f"{SHOWN}.sort()", ["[ ] Bread", "[ ] Milk"])


def test_without_rxdb_the_page_says_what_to_do(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = Server(tmp_path / "lists.db")
    try:
        page = browser.open(f"{server.url}/demo/offline")
        page.expect("document.querySelector('#missing').hidden", False)
        assert page.see("document.querySelector('#missing pre').textContent") == "script/rxdb"
        # Once it is there, the same server has it.
        (tmp_path / "cache" / "headwater").mkdir(parents=True)
        (tmp_path / "cache" / "headwater" / "rxdb.js").write_text("export const found = 'it';")
        assert page.see("import('/demo/rxdb.js?again').then(module => module.found)") == "it"
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["todo", "offline"])
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)])
@PATIENT
@needs_node
def test_everything_is_within_reach_at_any_width(
    browser: Browser, rxdb: None, servers: tuple[Server, Server], tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    page = browser.open(f"{servers[0].url}/demo/{name}?list=width-{width}-{dark}")
    page.resize(width, 800, dark=dark)
    page.expect(STATE, "open")
    texts = ["Milk", "Bread from the bakery at the corner, the dark one with the seeds", "Eggs"]
    for number, text in enumerate(texts, 1):
        add(page, text)
        page.expect("document.querySelectorAll('#items li').length", number)
    tick(page, "Milk")
    page.expect("document.querySelector('#clear').hidden", False)
    assert page.see("document.documentElement.scrollWidth <= innerWidth")
    assert page.see(
        "[...document.querySelectorAll('button')].every(button => button.getBoundingClientRect().right <= innerWidth)"
    )
    page.screenshot(Path(os.environ.get("HEADWATER_SCREENSHOTS") or tmp_path) / f"{name}-{width}-{dark}.png")
    assert page.errors == []
