"""`headwater.js` with documents and live queries, in node, against real servers: what it writes is in the store, what
it shows is what is there, however often its connection is cut."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import sync
from headwater.log.operations import Clear
from headwater.model.document import changes_queue
from tests.browser.node import Page, page_in_node
from tests.browser.npm import needs_node
from tests.browser.restoring import put_back, write_backup
from tests.scenarios.servers import Server

pytestmark = needs_node

IDS = "live.documents.map(one => one.id)"


@pytest.fixture
def page(tmp_path: Path, server: Server) -> Iterator[Page]:
    folder = tmp_path / "page"
    folder.mkdir()
    with page_in_node(folder) as page:
        page.see(f"void (globalThis.hw = client.connect({json.dumps(server.url)}))")
        page.see("void (globalThis.todos = hw.collection('lists/house/todos'))")
        yield page


@pytest.fixture
def store(path: Path, server: Server) -> Iterator[sync.Headwater]:
    """The same store from another process, as another server has it."""
    with sync.open(str(path)) as store:
        yield store


def follow(page: Page, query: str = "todos") -> None:
    """Follow, and note everything that is told."""
    page.do(
        f"""
        globalThis.told = [];
        globalThis.shown = [];
        globalThis.live = {query}.follow(documents => shown.push(documents.map(one => one.id)));
        for (const name of ["enter", "change", "leave", "error"]) {{
          live.on(name, one => told.push([name, one.id ?? one.code, one.version ?? null, one.deleted ?? false]));
        }}
        await live.ready;
        """
    )


def cut(page: Page) -> None:
    """Take the connection away, as a network does."""
    page.see("void sockets.at(-1).close()")


async def forget_changes(path: Path) -> None:
    """As if the log had not kept what happened to the documents."""
    async with headwater.open(str(path)) as hw:
        await hw.committer.submit(Clear(database="main", queue=changes_queue("lists/house/todos")))


# ── documents ──


def test_what_is_written_is_in_the_store(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    made = page.see("todos.create({ text: 'Milk', tags: ['food', 'ä'] })")
    found = todos.get(made["id"])
    assert found is not None
    assert (found.data, found.version) == ({"text": "Milk", "tags": ["food", "ä"]}, 1)
    assert page.see(f"todos.get({json.dumps(made['id'])})") == made

    assert page.see("todos.create({ text: 'Bread' }, { id: 'b ä/?'.replace('/', '') })")["id"] == "b ä?"
    assert page.see("todos.get('b ä?')")["text"] == "Bread"
    assert page.refusal("todos.create({}, { id: 'b ä?' })") == "document_exists"
    assert page.see("todos.update('b ä?', { done: true })")["version"] == 2
    assert page.see("todos.set('b ä?', { text: 'Rye' })")["version"] == 3
    found = todos.get("b ä?")
    assert found is not None
    assert found.data == {"text": "Rye"}
    assert page.see("todos.delete('b ä?')") is None
    assert todos.get("b ä?") is None
    assert page.see("todos.get('b ä?')") is None
    assert page.refusal("todos.update('b ä?', { done: true })") == "document_missing"


def test_a_condition_that_does_not_hold_changes_nothing(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    todos.set("a", {"text": "Milk", "owner": "ada"})
    assert page.refusal("todos.set('a', { text: 'x' }, { ifMatch: [['version', '==', 9]] })") == "precondition_failed"
    assert page.refusal("todos.update('a', { text: 'x' }, { ifMatch: [['owner', '==', 'bob']] })")
    assert page.refusal("todos.delete('a', { ifMatch: [{ field: 'owner', op: '!=', value: 'ada' }] })")
    found = todos.get("a")
    assert found is not None
    assert (found.data["text"], found.version) == ("Milk", 1)
    page.see("todos.update('a', { text: 'Oats' }, { ifMatch: [['version', '==', 1], ['owner', '==', 'ada']] })")
    page.see("todos.delete('a', { ifMatch: [['text', '==', 'Oats']] })")
    assert todos.get("a") is None


def test_a_query_has_filters_order_limit_and_cursor(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    for number in range(10):
        todos.set(
            f"t{number}", {"n": number, "done": number % 2 == 0, "at": {"city": "Wien" if number < 5 else "Graz"}}
        )
    todos.delete("t9")
    ids = ".then(({ documents, nextCursor }) => [documents.map(one => one.id), nextCursor !== ''])"
    assert page.see("todos.where('n', '>', 2).where('done', '==', true).find()" + ids) == [["t4", "t6", "t8"], False]
    assert page.see("""todos.where('n > 2').where('done || at.city == "Wien"').find()""" + ids) == [
        ["t3", "t4", "t6", "t8"],
        False,
    ]
    assert page.see("todos.orderBy('at.city').orderBy('n', 'desc').limit(3).find()" + ids) == [["t8", "t7", "t6"], True]
    pages = page.do(
        """
        const pages = [];
        for (let query = todos.orderBy('n', 'desc').limit(4); query !== null;) {
          const { documents, nextCursor } = await query.find();
          pages.push(documents.map(one => one.n));
          query = nextCursor ? query.startAfter(nextCursor) : null;
        }
        return pages;
        """
    )
    assert pages == [[8, 7, 6, 5], [4, 3, 2, 1], [0]]
    every = "const all = []; for await (const one of todos.orderBy('n').limit(2).all()) all.push(one.n); return all;"
    assert page.do(every) == list(range(9))
    assert page.see("todos.showDeleted().where('deleted', '==', true).find()" + ids) == [["t9"], False]
    # A query stays what it is.
    assert page.do("const all = todos; all.where('n', '==', 1); return (await all.find()).documents.length;") == 9


def test_a_batch_is_done_whole_or_not_at_all(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    todos.set("a", {"text": "Milk"})
    done = page.do(
        """
        return await hw.batch()
          .create('lists/house/todos/b', { text: 'Bread' })
          .update('lists/house/todos/a', { done: true }, { ifMatch: [['version', '==', 1]] })
          .set('lists/away/todos/c', { text: 'Tent' })
          .delete('lists/house/todos/b')
          .commit();
        """
    )
    assert [(one["id"], one["version"]) for one in done] == [("b", 1), ("a", 2), ("c", 1), ("b", 2)]
    again = (
        "hw.batch().set('lists/house/todos/d', {}).delete('lists/house/todos/a', { ifMatch: [['done', '==', false]] })"
    )
    assert page.refusal(f"{again}.commit()") == "precondition_failed"
    assert todos.get("d") is None
    assert todos.get("a") is not None
    assert page.see("hw.batch().commit()") == []


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_no_name_leads_out_of_its_collection(page: Page, store: sync.Headwater, name: str) -> None:
    store.collection("lists").set("house", {"keep": "me"})
    store.collection("todos").set("t1", {"keep": "me"})
    said = json.dumps(name)
    for call in ("get(ID)", "set(ID, { evil: 1 })", "update(ID, { evil: 1 })", "delete(ID)"):
        assert page.refusal(f"todos.{call.replace('ID', said)}") == "invalid_input"
        inside = f"hw.collection('lists/' + {said} + '/todos')"
        assert page.refusal(f"{inside}.{call.replace('ID', json.dumps('t1'))}") == "invalid_input"
    assert page.refusal(f"client.connect({{ url: hw.url, database: {said} }}).collection('todos').get('t1')")
    for collection, key in (("lists", "house"), ("todos", "t1")):
        found = store.collection(collection).get(key)
        assert found is not None
        assert (found.data, found.version) == ({"keep": "me"}, 1)


def test_a_document_that_is_not_named_is_not_taken_for_another(page: Page, store: sync.Headwater) -> None:
    store.collection("lists").set("house", {"keep": "me"})
    for call in ("get()", "set(undefined, {})", "update(null, {})", "delete()"):
        assert page.refusal(f"hw.collection('lists/house').{call}") == "invalid_input"
    assert page.see("hw.collection('lists').set(7, { n: 7 })")["id"] == "7"


def test_without_a_server_a_write_says_so(page: Page, server: Server) -> None:
    page.expect("hw.state", "open")
    server.kill()
    assert page.refusal("todos.create({})") == "connection_lost"
    page.see("void hw.close()")
    assert page.refusal("todos.get('a')") == "closed"
    assert page.do("try { todos.follow(); } catch (error) { return error.code; }") == "closed"


# ── live queries ──


def test_what_is_refused_for_the_moment_is_asked_again(page: Page, store: sync.Headwater) -> None:
    page.expect("hw.state", "open")
    page.see("void refused.push('subscribe', 'subscribe')")
    follow(page)
    assert page.see("sent.filter(type => type === 'subscribe').length") == 3
    store.collection("lists/house/todos").set("a", {"n": 1})
    page.expect("told", [["enter", "a", 1, False]])


def test_a_live_query_that_was_stopped_while_it_was_refused_stays_stopped(page: Page) -> None:
    page.expect("hw.state", "open")
    page.do(
        """
        refused.push('subscribe');
        globalThis.live = todos.follow();
        await new Promise(resolve => setTimeout(resolve, 20));
        live.stop();
        await new Promise(resolve => setTimeout(resolve, 600));
        """
    )
    assert page.see("sent.filter(type => type === 'subscribe').length") == 1


def test_a_live_query_tells_what_enters_changes_and_leaves(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    todos.set("a", {"n": 2, "done": False})
    todos.set("b", {"n": 1, "done": True})
    follow(page, "todos.where('done', '==', false).orderBy('n')")
    assert page.see(IDS) == ["a"]
    todos.update("b", {"done": False})
    page.expect(IDS, ["b", "a"])
    todos.update("b", {"n": 3})
    page.expect(IDS, ["a", "b"])
    todos.update("a", {"done": True})
    todos.delete("b")
    page.expect(IDS, [])
    page.expect(
        "told",
        [
            ["enter", "a", 1, False],
            ["enter", "b", 2, False],
            ["change", "b", 3, False],
            ["leave", "a", 1, False],
            ["leave", "b", 3, True],
        ],
    )
    page.expect("shown.at(-1)", [])
    page.see("void live.stop()")
    todos.set("c", {"done": False})
    # What is asked after it is answered after it would have been told.
    page.see("hw.ask('unsubscribe', { id: 'none' })")
    assert page.see(IDS) == []


def test_a_query_that_can_not_be_followed_says_so(page: Page) -> None:
    for more in ("limit(3)", "startAfter('x')", "showDeleted()"):
        assert page.do(f"try {{ todos.{more}.follow(); }} catch (error) {{ return error.code; }}") == "invalid_input"
    assert page.refusal("todos.where('((').follow().ready") == "invalid_filter"
    page.do("globalThis.ended = []; todos.where('((').follow().on('error', error => ended.push(error.code));")
    page.expect("ended", ["invalid_filter"])


def test_after_a_cut_it_goes_on_behind_the_last_change(page: Page, server: Server, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    for name in "abc":
        todos.set(name, {"done": False})
    follow(page, "todos.where('done', '==', false)")
    todos.update("a", {"text": "x"})
    page.expect("told.length", 4)
    server.kill()
    page.expect("hw.state !== 'open'", True)
    todos.set("d", {"done": False})
    todos.update("b", {"done": True})
    todos.delete("c")
    todos.update("a", {"text": "y"})
    assert page.see(IDS) == ["a", "b", "c"]
    server.start()
    page.expect(IDS, ["a", "d"])
    page.expect("told.slice(4).length", 4)
    assert page.see("told.slice(4)") == [
        ["enter", "d", 1, False],
        ["leave", "b", 1, False],
        ["leave", "c", 1, True],
        ["change", "a", 3, False],
    ]
    assert page.see("sent.filter(type => type === 'subscribe' || type === 'resume')") == ["subscribe", "resume"]
    todos.set("e", {"done": False})
    page.expect(IDS, ["a", "d", "e"])


def test_where_the_log_does_not_reach_back_the_set_is_exchanged_whole(
    page: Page, server: Server, store: sync.Headwater, path: Path
) -> None:
    todos = store.collection("lists/house/todos")
    for name in "abc":
        todos.set(name, {"n": 1})
    follow(page)
    server.kill()
    todos.delete("a")
    todos.update("b", {"n": 2})
    todos.set("d", {"n": 1})
    asyncio.run(forget_changes(path))
    server.start()
    page.expect(IDS, ["b", "c", "d"])
    page.expect("told.slice(3)", [["leave", "a", 1, False], ["change", "b", 2, False], ["enter", "d", 1, False]])
    assert page.see("sent.filter(type => type === 'subscribe' || type === 'resume')") == [
        "subscribe",
        "resume",
        "subscribe",
    ]
    # Nobody was shown anything between the two.
    page.expect("shown.length", 2)
    assert page.see("shown") == [["a", "b", "c"], ["b", "c", "d"]]


def test_another_document_under_the_same_version_is_told_after_a_restore(
    page: Page, server: Server, path: Path, tmp_path: Path
) -> None:
    """What was written behind the backup is gone, and its versions are given once more."""
    with sync.open(str(path)) as store:
        for name in "ab":
            store.collection("lists/house/todos").set(name, {"n": 1})
    backup = tmp_path / "backup.db"
    write_backup(path, backup)
    with sync.open(str(path)) as store:
        store.collection("lists/house/todos").update("a", {"n": 2})
    follow(page)
    page.do("globalThis.changed = []; live.on('change', one => changed.push([one.id, one.version, one.n]));")
    server.kill()
    put_back(backup, path)
    with sync.open(str(path)) as store:
        store.collection("lists/house/todos").update("a", {"n": 3})
    server.start()
    page.expect("changed", [["a", 2, 3]])


def test_a_snapshot_that_is_cut_is_read_anew(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    with store.transaction() as together:
        for number in range(1_200):
            together.collection("lists/house/todos").set(f"t{number:04}", {"n": number})
    page.expect("hw.state", "open")
    page.do(
        """
        globalThis.pages = [];
        const socket = sockets.at(-1), take = socket.onmessage;
        socket.onmessage = event => {
          const { type, payload } = JSON.parse(event.data);
          if (type === 'snapshot') {
            pages.push(payload.documents.length);
            socket.close();
            socket.onmessage = () => {};
          }
          take(event);
        };
        globalThis.live = todos.follow();
        """
    )
    page.expect("live.documents.length", 1_200)
    assert page.see("pages.length") == 1
    assert page.see("pages[0] < 1200")
    assert page.see("sent.filter(type => type === 'subscribe' || type === 'resume')") == ["subscribe", "subscribe"]
    todos.delete("t0000")
    page.expect("live.documents.length", 1_199)


def test_cuts_without_end_lose_nothing(page: Page, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    follow(page, "todos.where('kept', '==', true)")
    for number in range(30):
        todos.set(f"t{number % 7}", {"kept": number % 3 != 0, "n": number})
        if number % 4 == 0:
            cut(page)
    expected = {one.id: one.version for one in todos.query("kept == true")}
    page.expect("Object.fromEntries(live.documents.map(one => [one.id, one.version]))", expected)


def test_documents_are_in_the_order_of_the_server(page: Page, store: sync.Headwater) -> None:
    values: list[Any] = [
        None,
        False,
        True,
        -1,
        0,
        0.5,
        2,
        10,
        "",
        "a",
        "B",
        "ab",
        "\ue000",
        "\U0001f600",
        [1],
        [1, 2],
        ["b", {"z": 1, "a": [None]}],
        ["b", {"c": 1}],
        {"x": 1},
        # The fields of an object have no order of their own, also not where JavaScript gives them one.
        {"x": 1, "b": 2},
        {"c": 0},
        {"9": 1, "10": 2},
        {"1a": 1},
        {"\U0001f600": 1, "\ue000": 2},
        {"\ue001": 1, "\U0001f600": 2},
    ]
    todos = store.collection("lists/house/todos")
    for number, value in enumerate([*values, *reversed(values)]):
        todos.set(f"t{number:02}", {"v": {"at": value}, "n": number % 3})
    todos.set("without", {"n": 1})
    for order in ("orderBy('v.at')", "orderBy('v.at', 'desc')", "orderBy('n', 'desc').orderBy('v.at')"):
        follow(page, f"todos.{order}")
        found = page.see(f"todos.{order}.find().then(found => found.documents.map(one => one.id))")
        assert page.see(IDS) == found


# ── who it is ──


async def test_a_token_that_has_run_out_is_got_anew(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    scopes = ["documents:read", "documents:create", "documents:update"]
    async with headwater.open(str(path)) as hw:
        old, secret = await hw.access_tokens().create("old", scopes)
        _, other = await hw.access_tokens().create("new", scopes)
        server = Server(path, "--auth", "token")
        try:
            with page_in_node(folder) as page:
                page.do(
                    f"""
                    globalThis.secrets = {json.dumps([secret])};
                    globalThis.hw = client.connect({{
                      url: {json.dumps(server.url)},
                      token: () => secrets[secrets.length - 1],
                    }});
                    globalThis.todos = hw.collection('todos');
                    """
                )
                follow(page)
                page.see("todos.set('a', {})")
                page.expect(IDS, ["a"])
                page.see(f"void secrets.push({json.dumps(other)})")
                await hw.access_tokens().revoke(old.id)
                # However soon the server learns of it, no write fails, and the live query goes on.
                page.see("todos.set('b', {})")
                page.expect(IDS, ["a", "b"])
                page.expect("sent.filter(type => type === 'auth').length > 1 && hw.state", "open")
                page.see("todos.set('c', {})")
                page.expect(IDS, ["a", "b", "c"])
                assert page.refusal("todos.delete('b')") == "not_allowed"
        finally:
            server.stop()


# ── replicas ──


def test_a_stream_says_when_to_pull_and_then_what_is_written(page: Page, server: Server, store: sync.Headwater) -> None:
    todos = store.collection("lists/house/todos")
    todos.set("a", {"n": 1})
    page.do(
        """
        globalThis.told = [];
        globalThis.replication = hw.replication('lists/house/todos');
        globalThis.stream = replication.pull.stream$.subscribe({
          next: event => told.push(event === 'RESYNC' ? event : event.documents.map(one => [one.id, one._deleted])),
        });
        """
    )
    page.expect("told", ["RESYNC"])
    todos.set("b", {"n": 1})
    todos.delete("a")
    page.expect("told", ["RESYNC", [["b", False]], [["a", True]]])
    server.kill()
    todos.set("c", {"n": 1})
    server.start()
    page.expect("told.slice(3)", ["RESYNC"])
    pulled = page.see("replication.pull.handler(null, 10)")
    assert [(one["id"], one["_deleted"]) for one in pulled["documents"]] == [("b", False), ("a", True), ("c", False)]
    assert page.see(f"replication.pull.handler({json.dumps(pulled['checkpoint'])}, 10)")["documents"] == []
    rows = [{"newDocumentState": {"id": "d", "n": 5, "_deleted": False}}, {"newDocumentState": {"id": "c", "n": 9}}]
    conflicts = page.see(f"replication.push.handler({json.dumps(rows)})")
    assert [(one["id"], one["n"]) for one in conflicts] == [("c", 1)]
    found = todos.get("d")
    assert found is not None
    assert found.data == {"n": 5}
    page.expect("told.at(-1)", [["d", False]])
    page.see("void stream.unsubscribe()")
    todos.set("e", {})
    page.see("hw.ask('unsubscribe', { id: 'none' })")
    assert page.see("told.at(-1)") == [["d", False]]


def test_what_was_written_while_away_is_pushed_however_large_it_is_together(page: Page, store: sync.Headwater) -> None:
    """The default batch of RxDB, 100 rows, may be larger than a body may be."""
    page.do(
        """
        const rows = [...Array(80).keys()].map(n => ({ newDocumentState: { id: `b${n}`, t: "x".repeat(240_000) } }));
        globalThis.conflicts = await hw.replication("big").push.handler(rows);
        globalThis.again = await hw.replication("big").push.handler(
          rows.map(({ newDocumentState }) => ({ newDocumentState: { ...newDocumentState, t: "y" } })),
        );
        """
    )
    assert page.see("conflicts") == []
    assert page.see("again.length") == 80
    kept = [store.collection("big").get(f"b{number}") for number in range(80)]
    assert [len(one["t"]) for one in kept if one is not None] == [240_000] * 80


def test_a_push_is_cut_smaller_where_less_is_taken_and_says_why_it_is_refused(
    page: Page, server: Server, store: sync.Headwater
) -> None:
    """A proxy before the server may take less than the server does."""
    page.do(
        f"""
        globalThis.bodies = [];
        const fetch = async (address, options) => {{
          bodies.push(options.body.length);
          if (options.body.length > 1_000) return new Response("<h1>too large</h1>", {{ status: 413 }});
          return globalThis.fetch(address, options);
        }};
        globalThis.small = client.connect({{ url: {json.dumps(server.url)}, fetch }});
        globalThis.row = (id, size) => ({{ newDocumentState: {{ id, t: "x".repeat(size) }} }});
        await small.replication("small").push.handler([..."abcdefgh"].map(id => row(id, 300)));
        """
    )
    assert sorted(one.id for one in store.collection("small").query()) == list("abcdefgh")
    assert page.see("bodies.filter(size => size > 1_000).length") > 1
    tried = "small.replication('small').push.handler([row('i', 2_000)]).catch(error => [error.message, error.status])"
    assert page.see(tried) == ["HTTP 413", 413]
    refused = page.see(
        "hw.replication('small').push.handler([row('fine', 1), row('large', 300_000)])"
        ".catch(error => [error.status, error.document, error.message.includes('262,144 bytes')])"
    )
    assert refused == [413, "large", True]
    told = "{ detail: 'a body may have 5 bytes', code: 'body_too_large' }"
    page.see(f"void (globalThis.fetch = async () => Response.json({told}, {{ status: 413 }}))")
    found = page.see("hw.replication('s').push.handler([row('i', 1)]).catch(error => [error.code, error.message])")
    assert found == ["body_too_large", "a body may have 5 bytes"]
