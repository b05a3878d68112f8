"""`headwater.js`: what its connection and its rooms tell, and when it comes back, in node against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import sync
from tests.browser.node import Page, page_in_node
from tests.browser.npm import needs_node
from tests.browser.restoring import put_back, write_backup
from tests.scenarios.servers import Server

pytestmark = needs_node

# Besides "presence", which nobody can send: the server keeps that type for itself.
OWN_EVENTS = ["message", "cursors", "resync", "joined", "error"]


@pytest.fixture
def page(tmp_path: Path, server: Server) -> Iterator[Page]:
    folder = tmp_path / "page"
    folder.mkdir()
    with page_in_node(folder) as page:
        page.do(
            f"""
            globalThis.url = {json.dumps(server.url)};
            globalThis.hw = client.connect(url);
            globalThis.errors = [];
            hw.on("error", error => errors.push(error.code));
            globalThis.room = hw.room("page");
            await room.join();
            """
        )
        yield page


def test_nobody_else_causes_the_events_of_a_room_itself(page: Page) -> None:
    page.do(
        f"""
        globalThis.told = [];
        globalThis.heard = [];
        for (const name of {json.dumps(OWN_EVENTS)}) {{
          if (name !== "message") room.on(name, () => told.push(name));
        }}
        room.on("message", message => heard.push(message.type));
        room.on("hello", message => heard.push(message.data));
        const other = client.connect(url).room("page");
        for (const name of {json.dumps(OWN_EVENTS)}) await other.send(name, {{}});
        await other.send("hello", "you");
        """
    )
    page.expect("heard.at(-1)", "you")
    assert page.see("heard") == [*OWN_EVENTS, "hello", "you"]
    assert page.see("told") == []


def test_a_message_that_is_too_large_closes_the_connection_and_the_page_is_told_why(page: Page) -> None:
    assert page.refusal("room.send('test', 'x'.repeat(4_000_000))") == "connection_lost"
    page.expect("hw.state", "closed")
    assert page.see("errors") == ["message_too_large"]
    assert page.refusal("room.send('test', 'y')") == "closed"


def test_a_page_that_closes_its_connection_is_told_of_no_error(page: Page) -> None:
    page.see("void hw.close()")
    assert page.see("[hw.state, errors]") == ["closed", []]


def test_a_function_that_gives_no_token_for_a_while_is_asked_again(page: Page) -> None:
    page.do(
        """
        globalThis.asked = 0;
        const token = async () => { asked += 1; if (asked < 4) throw new Error("away"); return "token"; };
        globalThis.other = client.connect({ url, token });
        other.on("error", error => errors.push(error.code));
        await other.room("page").join();
        await other.room("page").send("test", 1);
        """
    )
    assert page.see("[other.state, asked, errors]") == ["open", 4, []]


def test_a_room_that_is_refused_for_the_moment_is_joined_a_moment_later(page: Page) -> None:
    page.do(
        """
        globalThis.heard = [];
        room.on("test", message => heard.push(message.data));
        room.on("error", error => errors.push(error.code));
        refused.push("join", "join");
        sockets.at(-1).close();
        """
    )
    page.expect("sent.filter(type => type === 'join').length", 4)
    page.see("client.connect(url).room('page').send('test', 1)")
    page.expect("heard", [1])
    assert page.see("errors") == []


def test_a_connection_that_ends_with_an_error_alone_is_tried_again(page: Page) -> None:
    page.do(
        """
        class Forbidden {
          constructor() { setTimeout(() => this.onerror?.(new Event("error"))); }
          close() {}
        }
        globalThis.tries = 0;
        const make = function (address) { return ++tries < 3 ? new Forbidden() : new WebSocket(address); };
        globalThis.states = [];
        globalThis.other = client.connect({ url, WebSocket: make });
        other.on("state", state => states.push(state));
        other.on("error", error => errors.push(error.code));
        void other.room("page").join();
        """
    )
    page.expect("states", ["waiting", "connecting", "waiting", "connecting", "open"])
    assert page.see("[tries, errors]") == [3, []]


def test_a_room_is_joined_once_however_early_and_often_that_is_asked_for(page: Page) -> None:
    page.do(
        """
        sent.length = 0;
        const visit = client.connect(url).room("page");
        await Promise.all([visit.join(), visit.join()]);
        await visit.send("test", 1);
        """
    )
    assert page.see("sent") == ["join", "send"]


def test_a_room_that_was_made_again_meanwhile_is_told_to_who_comes_back(page: Page, server: Server, path: Path) -> None:
    page.do(
        """
        globalThis.heard = [];
        room.on("test", message => heard.push(message.data));
        room.on("resync", () => heard.push("resync"));
        for (const number of [0, 1, 2]) await room.send("test", number);
        """
    )
    page.expect("heard", [0, 1, 2])
    before = page.see("[room.offset, room.epoch]")
    server.kill()
    with sync.open(str(path)) as store:
        store.queue("rooms/page").delete()
        for number in range(10, 16):
            store.room("page").send(number, type="test")
    server.start()
    expected = [0, 1, 2, "resync", *range(10, 16)]
    page.expect("heard", expected)
    assert page.see("room.epoch") not in ("", before[1])
    # And so is a page that had kept where it was.
    page.do(
        f"""
        globalThis.later = [];
        const visit = client.connect(url).room("page", {{ since: {before[0]}, epoch: {json.dumps(before[1])} }});
        visit.on("test", message => later.push(message.data));
        visit.on("resync", () => later.push("resync"));
        await visit.join();
        """
    )
    page.expect("later", expected[3:])


def test_a_room_whose_store_was_restored_meanwhile_is_told_to_who_comes_back(
    page: Page, server: Server, path: Path, tmp_path: Path
) -> None:
    """Messages behind the backup are given offsets that the page has seen: it would take them for known."""
    page.do(
        """
        globalThis.heard = [];
        room.on("test", message => heard.push(message.data));
        room.on("resync", () => heard.push("resync"));
        await room.send("test", 0);
        """
    )
    page.expect("heard", [0])
    backup = tmp_path / "backup.db"
    write_backup(path, backup)
    page.do("for (const number of [1, 2]) await room.send('test', number);")
    page.expect("heard", [0, 1, 2])
    epoch = page.see("room.epoch")
    server.kill()
    put_back(backup, path)
    with sync.open(str(path)) as store:
        for number in (10, 11, 12):
            store.room("page").send(number, type="test")
    server.start()
    page.expect("heard", [0, 1, 2, "resync", 0, 10, 11, 12])
    assert page.see("room.epoch") not in ("", epoch)


def test_an_offset_is_told_with_its_own_epoch_until_the_room_began_anew(page: Page) -> None:
    """Or who is cut off between the two answers would come back with an offset of before, and be told of no hole."""
    page.do("await room.send('test', 1);")
    page.expect("room.offset", 0)
    epoch = page.see("room.epoch")
    page.do("await room.rejoin(async () => ({ epoch: 'another', offset: 5, member: 'm', members: [] }));")
    assert page.see("[room.offset, room.epoch]") == [0, epoch]
    page.do("room.receive('resync-required', { room: 'page', reason: 'dropped', offset: 2 });")
    assert page.see("[room.offset, room.epoch]") == [2, "another"]
