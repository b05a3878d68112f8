"""The log read through a server: whoever reads gets everything once, whatever happens on the way, and theirs alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.app import open_door
from headwater.client.access import Access, find_token
from headwater.client.log_reader import RemoteLogReader
from headwater.clock import SystemClock, Timestamp
from headwater.config import load_config
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.doors.wire import Request
from headwater.errors import (
    ConfigError,
    InvalidOption,
    NotAllowed,
    Overloaded,
    ServerUnreachable,
    ServerUnreadable,
    StoreReplaced,
    Unauthenticated,
)
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import split_records
from headwater.services import log_reading
from headwater.services.log_reading import LogReading, Part
from headwater.services.log_requests import Segments, SegmentsDecoder, pack
from headwater.stores.log_reader import Body, Fingerprint
from headwater.stores.open import open_reader, open_store
from headwater.stores.questions import FindIdentity
from tests.certificates import make_certificate
from tests.client.proxy import CutAnswers, Proxy, Weather
from tests.client.server import Server

LAST = Lsn(2**62)
TOKEN = "hw_canary_token_that_nobody_may_see"


async def connect(url: str, **access: Any) -> RemoteLogReader:
    reader = RemoteLogReader(url, Access(**access))
    await reader.open()
    return reader


async def scan(reader: RemoteLogReader, *queues: str, bytes_max: int = 2_000) -> list[Any]:
    """All payloads of some queues, look after look, as a task of Spark reads them."""
    after, found = Lsn(0), []
    while bodies := await reader.bodies(after, LAST, bytes_max, "main", queues):
        found += [msgspec.json.decode(record.data) for body in bodies for record in split_records(body.records)]
        after = bodies[-1].lsn
    return found


async def fill(hw: headwater.Headwater, count: int, queue: str = "orders") -> list[int]:
    for number in range(count):
        await hw.queue(queue).push(number, partition=f"p{number % 3}")
    return list(range(count))


# ── network failures ──


@pytest.mark.parametrize("seed", range(3))
async def test_a_scan_over_a_bad_way_gets_everything_once_and_in_order(server: Server, seed: int) -> None:
    pushed = await fill(server.hw, 60)
    async with Proxy(server.port) as proxy:
        proxy.fault = weather = Weather(seed, 0.1)
        reader = await connect(proxy.url)
        assert await scan(reader, "orders", bytes_max=20) == pushed
        await reader.close()
        assert weather.cuts


async def test_an_answer_that_was_cut_within_its_bytes_is_asked_for_again(server: Server) -> None:
    pushed = await fill(server.hw, 20)
    async with Proxy(server.port) as proxy:
        reader = await connect(proxy.url)
        proxy.fault = fault = CutAnswers(3, kept_bytes=250)
        assert await scan(reader, "orders") == pushed
        assert fault.left == 0
        await reader.close()


async def test_a_scan_goes_on_when_its_server_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "headwater.db"
    async with Server(path) as server:
        pushed = await fill(server.hw, 30)
        reader = await connect(server.url)
        first = await reader.bodies(Lsn(0), LAST, 50, "main", ["orders"])
    again = asyncio.ensure_future(reader.bodies(first[-1].lsn, LAST, 1_000_000, "main", ["orders"]))
    async with Server(path, server.port):
        rest = await again
        await reader.close()
    told = [msgspec.json.decode(record.data) for body in (*first, *rest) for record in split_records(body.records)]
    assert told == pushed


async def test_a_server_that_does_not_come_back_is_told_after_the_time_that_was_allowed(tmp_path: Path) -> None:
    async with Server(tmp_path / "headwater.db") as server:
        reader = await connect(server.url, retry_seconds=0.3)
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1"):
        await reader.bodies(Lsn(0), LAST, 50, "main", ["orders"])
    await reader.close()


async def test_another_store_at_the_same_address_is_no_continuation(tmp_path: Path) -> None:
    async with Server(tmp_path / "one.db") as server:
        await fill(server.hw, 3)
        reader = await connect(server.url)
    async with Server(tmp_path / "two.db", server.port) as other:
        await fill(other.hw, 3)
        with pytest.raises(StoreReplaced, match="another store"):
            await reader.bodies(Lsn(0), LAST, 50, "main", ["orders"])
        await reader.close()


@pytest.mark.parametrize("answer", [b"", b"{}", b"\x28\xb5\x2f\xfd", msgspec.msgpack.encode([1, 2])])
def test_bytes_that_are_no_segments_are_told_as_such(answer: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        SegmentsDecoder().decode(answer)


# ── what it costs the server ──


async def test_an_answer_has_no_more_bytes_than_the_server_allows(tmp_path: Path) -> None:
    async with Server(tmp_path / "headwater.db", log_answer_bytes_max=100) as server:
        for _ in range(10):
            await server.hw.queue("orders").push("x" * 60)
        reader = await connect(server.url)
        sizes = []
        after = Lsn(0)
        while bodies := await reader.bodies(after, LAST, 1_000_000, "main", ["orders"]):
            sizes.append(len(bodies))
            after = bodies[-1].lsn
        await reader.close()
    assert sizes == [2] * 5


async def test_requests_beyond_the_bound_are_told_to_come_back(tmp_path: Path) -> None:
    async with Server(tmp_path / "headwater.db", log_requests_max=2) as server:
        pushed = await fill(server.hw, 3)
        places = [server.hw.log_reading.enter() for _ in range(2)]
        with pytest.raises(Overloaded, match="2 requests"):
            await connect(server.url, retry_seconds=0.2)
        for place in places:
            place.leave()
            place.leave()
        reader = await connect(server.url)
        assert await scan(reader, "orders") == pushed
        await reader.close()
        assert server.hw.log_reading.requests == 0


async def test_an_answer_keeps_its_place_until_the_client_has_it_or_is_gone(server: Server) -> None:
    await fill(server.hw, 3)
    reading = server.hw.log_reading
    body = msgspec.json.encode({"after": 0, "through": 100, "queues": ["orders"]})
    about = {"content-type": "application/json", "host": "127.0.0.1"}
    asked = Request(method="POST", path="/v1/log/segments", headers=about, body=body)

    taken = await server.edge.handler(asked)
    assert taken.chunks is not None
    assert reading.requests == 1
    assert [chunk async for chunk in taken.chunks]
    assert reading.requests == 0

    cut = await server.edge.handler(asked)
    assert cut.chunks is not None
    await anext(cut.chunks)
    assert reading.requests == 1
    await cut.chunks.aclose()
    assert reading.requests == 0

    gone = await server.edge.handler(asked)
    assert gone.undelivered is not None
    gone.undelivered()
    assert reading.requests == 0


async def test_a_look_for_a_quiet_queue_in_a_long_log_ends_and_says_how_far_it_came(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reading, "WINDOW_LSNS", 4)
    await server.hw.queue("quiet").push("first")
    await fill(server.hw, 40)
    await server.hw.queue("quiet").push("last")
    direct = open_reader(str(server.hw.store.traits.location), load_config({}))
    await direct.open()

    async def end() -> Lsn:
        return (await direct.span())[1]

    hurried = Part(direct, "main", ["quiet"], lambda: True, end)
    assert (await hurried.outline(Lsn(1), LAST, 10)).reached == 5
    assert (await hurried.bodies(Lsn(1), LAST, 10))[1] == 5
    assert (await hurried.newest(Lsn(1), Lsn(41))).reached == 37
    await direct.close()
    # Whoever asks gets it all in the end.
    monkeypatch.setattr(log_reading, "LOOK_SECONDS", -1.0)
    reader = await connect(server.url)
    assert await scan(reader, "quiet") == ["first", "last"]
    assert [one.lsn for one in await reader.outline(Lsn(0), LAST, 10, "main", ["quiet"])] == [1, 42]
    assert await reader.newest(Lsn(0), Lsn(41), "main", ["quiet"]) == 1
    assert await reader.newest(Lsn(1), Lsn(41), "main", ["quiet"]) is None
    await reader.close()


async def test_the_event_loop_of_the_server_goes_on_while_a_reader_looks(server: Server) -> None:
    """A reader that does not end its look holds up other readers, never the queues."""
    began, ends = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def look(reader: Any) -> str:
        loop.call_soon_threadsafe(began.set)
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(ends.wait(), loop).result())
        return "done"

    asked = asyncio.ensure_future(server.hw.log_reading.ask(look))
    await began.wait()
    async with headwater.connect(server.url) as client:
        await client.queue("orders").push(1)
        assert [message.payload for message in await client.queue("orders").pop()] == [1]
    ends.set()
    assert await asked == "done"


async def test_a_reader_that_failed_is_not_asked_again(server: Server) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(open_reader(str(server.hw.store.traits.location), load_config({})))
        return made[-1]

    async def fail(reader: Any) -> None:
        raise StoreReplaced("gone")

    async def span(reader: Any) -> Any:
        return await reader.span()

    reading = LogReading(make, readers_max=1, requests_max=1)
    await reading.ask(span)
    await reading.ask(span)
    assert len(made) == 1
    with pytest.raises(StoreReplaced):
        await reading.ask(fail)
    await reading.ask(span)
    assert len(made) == 2
    await reading.close()


# ── who may read what ──


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[headwater.Headwater, str]]:
    async with (
        headwater.open(str(tmp_path / "headwater.db"), encryption_key="ab" * 32) as hw,
        open_door(hw, load_access(auth="token")) as door,
    ):
        edge = Edge(door)
        await edge.start("127.0.0.1", 0)
        yield hw, f"http://127.0.0.1:{edge.port}"
        edge.abort()
        await edge.stop()


async def token_for(hw: headwater.Headwater, *scopes: str, queues: Sequence[str] = ("*",), of: str = "main") -> str:
    _, secret = await hw.access_tokens(of).create("ada", scopes, queues=queues)
    return secret


Guarded = tuple[headwater.Headwater, str]


async def everything(reader: RemoteLogReader, *queues: str) -> list[Any]:
    """All that a reader is told, but for the end of the log, which counts the commits of all."""
    about = await reader._about()
    bodies = await reader.bodies(Lsn(0), LAST, 1_000_000, "main", queues)
    return [
        (about.identity, about.database, about.after, about.queues),
        await reader.lsn_at(Timestamp(0)),
        await reader.newest(Lsn(0), LAST, "main", queues),
        await reader.outline(Lsn(0), LAST, 10, "main", queues),
        [(body.lsn, body.lane, body.records) for body in bodies],
        await reader.drops(Lsn(0), 0, "main", queues),
        await reader.drops(Lsn(0), 0, "main", ()),
        await reader.fingerprint(LAST),
    ]


@pytest.mark.parametrize("scope", ["subscribe", "consume", "admin"])
async def test_what_a_reader_may_not_read_does_not_change_what_it_is_told(guarded: Guarded, scope: str) -> None:
    hw, url = guarded
    await hw.queue("plans").push("secret")
    await hw.queue("orders.eu").push("ours")
    reader = await connect(url, token=await token_for(hw, scope, queues=["orders.*"]))
    named = ("orders.eu", "plans", "nowhere")
    before = await everything(reader, *named)
    assert list(before[0][3]) == ["orders.eu"]
    assert [lane.queue for _, lane, _ in before[4]] == ["orders.eu"]
    await hw.queue("plans").push("more secrets")
    await hw.queue("plans.b").push("a new queue")
    await hw.database("acme").queue("orders.eu").push("another tenant's")
    await hw.queue("plans.b").delete()
    assert await everything(reader, *named) == before
    # Of a segment of others it is not even said that it is there.
    assert await reader.remembers(Fingerprint(Lsn(1), "a guess")) is None
    assert await reader.remembers(Fingerprint(Lsn(2), "a guess")) is False
    await reader.close()


@pytest.mark.parametrize("scope", ["publish", "metrics", "jobs:submit"])
async def test_other_scopes_read_nothing(guarded: Guarded, scope: str) -> None:
    hw, url = guarded
    with pytest.raises(NotAllowed, match="subscribe or consume"):
        await connect(url, token=await token_for(hw, scope))


async def test_the_database_is_that_of_the_token_and_another_one_is_an_error(guarded: Guarded) -> None:
    hw, url = guarded
    await hw.queue("orders").push("ours")
    await hw.database("acme").queue("orders").push("theirs")
    reader = await connect(url, token=await token_for(hw, "consume", of="acme"))
    assert await scan(reader, "orders") == ["theirs"]
    assert await reader.queue_names("acme") == ["orders"]
    with pytest.raises(InvalidOption, match="'acme', not for 'globex'"):
        await reader.queue_names("globex")
    await reader.close()


async def test_a_permitted_reader_gets_encrypted_records_without_the_key(guarded: Guarded) -> None:
    hw, url = guarded
    await hw.queue("secret").configure(encrypted=True)
    await hw.queue("secret").push("plain to whom may read it")
    reader = await connect(url, token=await token_for(hw, "subscribe", queues=["secret"]))
    assert await scan(reader, "secret") == ["plain to whom may read it"]
    await reader.close()


async def test_without_a_token_the_error_says_where_one_is_looked_for(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = guarded
    monkeypatch.delenv("HEADWATER_TOKEN", raising=False)
    with pytest.raises(Unauthenticated, match=r"tokenFile.*HEADWATER_TOKEN"):
        await connect(url)
    with pytest.raises(Unauthenticated) as told:
        await connect(url, token=TOKEN)
    assert TOKEN not in str(told.value)


async def test_a_token_that_was_replaced_in_its_file_is_taken_from_there_once(guarded: Guarded, tmp_path: Path) -> None:
    hw, url = guarded
    await hw.queue("orders").push(1)
    file = tmp_path / "token"
    first, secret = await hw.access_tokens().create("first", ("subscribe",))
    file.write_text(secret)
    reader = await connect(url, token_file=str(file))
    second, secret = await hw.access_tokens().create("second", ("subscribe",))
    file.write_text(secret)
    await hw.access_tokens().revoke(first.id)
    # Two requests that meet the change together are both asked again.
    assert list(await asyncio.gather(scan(reader, "orders"), scan(reader, "orders"))) == [[1], [1]]
    file.write_text(TOKEN)
    assert await scan(reader, "orders") == [1]
    await hw.access_tokens().revoke(second.id)
    with pytest.raises(Unauthenticated):
        await reader.span()
    await reader.close()


def test_a_token_comes_from_the_option_the_file_or_the_environment_in_this_order(tmp_path: Path) -> None:
    kept, other = tmp_path / "token", tmp_path / "other"
    kept.write_text("of-the-file\n")
    other.write_text("of-the-environments-file")
    around = {"HEADWATER_TOKEN": "of-the-environment", "HEADWATER_TOKEN_FILE": str(other)}
    assert find_token(Access(token="given", token_file=str(kept)), around) == "given"
    assert find_token(Access(token_file=str(kept)), around) == "of-the-file"
    assert find_token(Access(), around) == "of-the-environment"
    assert find_token(Access(), {"HEADWATER_TOKEN_FILE": str(other)}) == "of-the-environments-file"
    assert find_token(Access(), {}) == ""
    for bad in (b"", b"\xff\xfe", b"two words"):
        kept.write_bytes(bad)
        with pytest.raises(ConfigError) as told:
            find_token(Access(token_file=str(kept)))
        assert "two words" not in str(told.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        find_token(Access(token_file=str(tmp_path / "nowhere")))


def test_a_token_is_shown_nowhere() -> None:
    assert TOKEN not in repr(Access(token=TOKEN))
    reader = RemoteLogReader("http://127.0.0.1:1", Access(token=TOKEN))
    assert TOKEN not in repr(reader.traits)


@pytest.mark.parametrize(
    ("url", "access", "says"),
    [
        ("http://example.org", {}, "use https:// for example.org"),
        ("http://10.0.0.1:6632", {}, "use https:// for"),
        ("http://127.0.0.1:6632", {"certificates_file": "ca.pem"}, "https://"),
        ("https://example.org", {"certificates_file": "/nowhere/ca.pem"}, "caFile must be a file with certificates"),
        ("https://ada:secret@example.org", {}, "no user or password"),
    ],
)
def test_an_address_that_would_show_or_lose_something_is_refused(url: str, access: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        open_reader(url, load_config({}), Access(**access))
    assert "secret" not in str(told.value)


def test_a_server_is_not_opened_as_a_store() -> None:
    with pytest.raises(ConfigError, match=r"https://ada@example\.org/x is a server.*headwater\.connect") as told:
        open_store("https://ada:secret@example.org/x", load_config({}), SystemClock())
    assert "secret" not in str(told.value)
    for unknown in ("gopher://bucket/log", "mysql://host/log"):
        with pytest.raises(ConfigError, match="has no store for"):
            open_reader(unknown, load_config({}))


def test_what_is_said_about_access_is_for_servers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="https://"):
        open_reader(str(tmp_path / "log.db"), load_config({}), Access(token="t"))


async def test_a_server_with_a_certificate_is_read_by_who_trusts_it(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    async with headwater.open(str(tmp_path / "headwater.db")) as hw, open_door(hw) as door:
        await hw.queue("orders").push(1)
        edge = Edge(door)
        await edge.start("127.0.0.1", 0, tls=certificate.server())
        url = f"https://127.0.0.1:{edge.port}"
        reader = await connect(url, certificates_file=str(certificate.shown))
        assert await scan(reader, "orders") == [1]
        await reader.close()
        # Asking again would not help, so it is told at once.
        with pytest.raises(ServerUnreadable, match="certificate is not trusted"):
            await connect(url, retry_seconds=3_600)
        edge.abort()
        await edge.stop()


async def test_segments_come_as_bytes_of_their_own_kind(server: Server) -> None:
    await server.hw.queue("orders").push({"id": 7})
    async with httpx.AsyncClient(base_url=server.url) as client:
        asked = {"after": 0, "through": 10, "queues": ["orders"]}
        answer = await client.post("/v1/log/segments", json=asked)
        assert answer.headers["content-type"] == "application/vnd.headwater.segments"
        segments = SegmentsDecoder().decode(answer.content)
        assert segments.reached == 10
        assert segments.identity == await server.hw.store.ask(FindIdentity())
        assert (await client.post("/v1/log/segments", json={**asked, "after": -1})).status_code == 400
        assert (await client.post("/v1/log/segments", json={**asked, "queues": ["q"] * 10_001})).status_code == 400


bodies_strategy = st.lists(
    st.builds(
        Body,
        lsn=st.integers(1, 2**62).map(Lsn),
        lane=st.builds(Lane, *[st.text(max_size=5)] * 5),
        first_offset=st.integers(0, 2**62).map(Offset),
        count=st.integers(0, 2**31),
        written_at=st.integers(0, 2**62).map(Timestamp),
        records=st.binary(max_size=300),
        partition_id=st.integers(1, 3).map(PartitionId),
    ),
    max_size=6,
    # One partition has one lane.
    unique_by=lambda body: body.partition_id,
)


@given(bodies_strategy, st.integers(0, 2**62))
def test_segments_come_out_as_they_went_in(bodies: list[Body], reached: int) -> None:
    assert SegmentsDecoder().decode(pack("this store", Lsn(reached), bodies)) == Segments(
        "this store", Lsn(reached), bodies
    )


@given(bodies_strategy, st.data())
def test_segments_that_were_damaged_on_the_way_are_never_taken_for_whole(bodies: list[Body], data: Any) -> None:
    packed = bytearray(pack("this store", Lsn(1), bodies))
    place = data.draw(st.integers(4, len(packed) - 1))
    packed[place] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(msgspec.MsgspecError):
        # A bit of a frame's head may say nothing that matters.
        assert SegmentsDecoder().decode(bytes(packed)).bodies == bodies
    with pytest.raises(msgspec.MsgspecError):
        SegmentsDecoder().decode(bytes(packed[:-1]))
