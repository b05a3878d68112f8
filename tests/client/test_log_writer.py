"""Commits of a query through a server: each step once, whole, whatever becomes of requests, answers and servers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.app import open_door
from headwater.client import log_writer
from headwater.client.access import Access
from headwater.client.log_writer import RemoteLogWriter, cut, gather
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.errors import (
    AlreadyReached,
    InvalidInput,
    NotAllowed,
    QueueMissing,
    ServerRefused,
    StagingLost,
    TooLarge,
    Unauthenticated,
)
from headwater.log.flow_operations import Load, Loaded, Unstage
from headwater.log.operations import Push, Reach, Seek, Transaction
from headwater.model.names import SYSTEM_PREFIX, Lsn
from headwater.model.record import Record, split_records
from headwater.services.log_requests import CommitResponse
from headwater.services.wire_forms import operation_path
from headwater.stores.questions import FindLastLsn, ListQueues
from tests.client.proxy import CutRequests, Fault, Proxy, Weather
from tests.client.server import Server


def record(payload: Any) -> Record:
    return Record(msgspec.Raw(msgspec.json.encode(payload)))


def push(*payloads: Any, queue: str = "totals", partition: str = "Default") -> Push:
    return Push(queue=queue, partition=partition, records=[record(payload) for payload in payloads])


def step(number: int, *operations: Any, note: str = "") -> Transaction:
    return Transaction(operations=[Reach(name="spark/q", number=number, note=note), *operations])


async def kept(hw: headwater.Headwater, queue: str = "totals", database: str = "main") -> list[Any]:
    segments = await hw.store.read(Lsn(0), Lsn(2**62), 10_000, (database, queue))
    return [msgspec.json.decode(record.data) for segment in segments for record in segment.records]


async def staged(hw: headwater.Headwater) -> int:
    store: Any = hw.store
    return int(store._writer._connection.execute("SELECT count(*) FROM hw_staged").fetchone()[0])


@pytest.fixture
async def writer(server: Server) -> AsyncIterator[RemoteLogWriter]:
    opened = RemoteLogWriter(server.url, Access())
    yield opened
    await opened.close()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a request could carry next to nothing."""
    monkeypatch.setattr(log_writer, "cut", lambda pushes: cut(pushes, 60))
    monkeypatch.setattr(log_writer, "gather", lambda pieces: gather(pieces, 100))


async def test_a_step_is_taken_once_with_all_that_belongs_to_it(server: Server, writer: RemoteLogWriter) -> None:
    await writer.commit(step(0, push(1, 2), push(3, partition="p"), note="3 records"))
    with pytest.raises(AlreadyReached) as told:
        await writer.commit(step(0, push(1, 2), note="other"))
    assert (told.value.number, told.value.note) == (0, "3 records")
    await writer.commit(step(1, push(4)))
    assert await kept(server.hw) == [1, 2, 3, 4]


async def test_a_key_makes_a_commit_without_a_step_repeatable(server: Server, writer: RemoteLogWriter) -> None:
    for _ in range(2):
        await writer.commit(Transaction(key="nightly", operations=[push(1)]))
    assert await kept(server.hw) == [1]


@pytest.mark.usefixtures("small_parts")
async def test_a_large_commit_goes_in_parts_and_takes_effect_as_one(server: Server, writer: RemoteLogWriter) -> None:
    numbers = list(range(200))
    await writer.commit(step(0, push(*numbers), push(*numbers, partition="p")))
    segments = await server.hw.store.read(Lsn(0), Lsn(2**62), 100, ("main", "totals"))
    assert [len(segment.records) for segment in segments] == [200, 200]
    assert await kept(server.hw) == numbers * 2
    assert await staged(server.hw) == 0
    with pytest.raises(AlreadyReached):
        await writer.commit(step(0, push(*numbers)))
    assert len(await kept(server.hw)) == 400


class EverySecond(Fault):
    """Every second request is answered to nobody."""

    def __init__(self, kept_bytes: int) -> None:
        self._count = 0
        self._kept_bytes = kept_bytes

    async def answer(self, data: bytes) -> tuple[bytes, bool]:
        self._count += 1
        return (data[: self._kept_bytes], True) if self._count % 2 else (data, False)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fault", [EverySecond(0), EverySecond(100), CutRequests(3), Weather(1, 0.1)])
async def test_what_is_lost_on_the_way_is_sent_again_and_has_one_effect(server: Server, fault: Any) -> None:
    async with Proxy(server.port) as proxy:
        far = RemoteLogWriter(proxy.url, Access())
        proxy.fault = fault
        numbers = list(range(100))
        await far.commit(step(0, push(*numbers)))
        assert await kept(server.hw) == numbers
        await far.close()


@pytest.mark.usefixtures("small_parts")
async def test_a_server_that_is_started_again_finds_what_was_uploaded(tmp_path: Path) -> None:
    path = tmp_path / "headwater.db"
    async with Server(path) as server:
        writer = RemoteLogWriter(server.url, Access())
        parts = list(gather(list(cut([push(*range(100))]))))
        assert len(parts) == 1
        uploaded = await writer._upload([[piece] for piece in cut([push(*range(100))], 60)])
    asked = asyncio.ensure_future(
        writer._post(
            "/v1/log/commit",
            {"upload": uploaded, "parts": len(list(cut([push(*range(100))], 60)))},
            CommitResponse,
        )
    )
    async with Server(path, server.port) as again:
        assert (await asked).records == 100
        assert await kept(again.hw) == list(range(100))
        await writer.close()


@pytest.mark.usefixtures("small_parts")
async def test_parts_that_are_gone_are_uploaded_again(
    server: Server, writer: RemoteLogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[str] = []
    upload = writer._upload

    async def lose_the_first(parts: Any) -> str:
        uploads.append(await upload(parts))
        if len(uploads) == 1:
            await server.hw.committer.submit(Unstage(upload=uploads[0]))
        return uploads[-1]

    monkeypatch.setattr(writer, "_upload", lose_the_first)
    await writer.commit(step(0, push(*range(100))))
    assert len(uploads) == 2
    assert await kept(server.hw) == list(range(100))


async def test_an_upload_that_is_not_whole_is_not_committed(server: Server, writer: RemoteLogWriter) -> None:
    uploaded = await writer._upload([list(cut([push(1)]))])
    with pytest.raises(StagingLost, match="1 of 2 parts"):
        await writer._post("/v1/log/commit", {"upload": uploaded, "parts": 2}, CommitResponse)
    assert await kept(server.hw) == []


async def test_a_commit_beyond_the_servers_bound_says_what_to_do(tmp_path: Path) -> None:
    async with Server(tmp_path / "headwater.db", staged_bytes_max=300_000) as server:
        writer = RemoteLogWriter(server.url, Access())
        with pytest.raises(TooLarge, match="maxOffsetsPerTrigger"):
            await writer.commit(step(0, push(*["x" * 10_000] * 100)))
        assert await kept(server.hw) == []
        await writer.close()


async def test_groups_move_with_a_commit(server: Server, writer: RemoteLogWriter) -> None:
    await server.hw.queue("orders").push_many([1, 2])
    receipt = await server.hw.queue("orders").push(3)
    assert receipt.lsn is not None
    await server.hw.queue("orders").push(4)
    await writer.commit(Transaction(operations=[Seek(queue="orders", group="spark", lsn=receipt.lsn)]))
    [group] = await server.hw.groups("orders")
    assert (group.group, group.lag) == ("spark", 1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"step": {"name": "load/orders", "number": 1}},
        {"step": {"name": "spark/q", "number": -1}},
        {"upload": "../../etc", "parts": 1},
        {"pushes": [{"queue": f"{SYSTEM_PREFIX}jobs", "records": [{"data": 1}]}]},
        {"pushes": [{"queue": "o", "records": [{"data": 1, "producerSub": "somebody"}]}]},
    ],
)
async def test_a_commit_that_cannot_be_is_refused_and_changes_nothing(
    server: Server, writer: RemoteLogWriter, body: dict[str, Any]
) -> None:
    with pytest.raises((InvalidInput, ServerRefused)):
        await writer._post("/v1/log/commit", body, CommitResponse)
    assert await server.hw.store.ask(FindLastLsn()) == 0


# ── who may commit what ──


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[headwater.Headwater, str]]:
    async with headwater.open(str(tmp_path / "g.db")) as hw, open_door(hw, load_access(auth="token")) as door:
        edge = Edge(door)
        await edge.start("127.0.0.1", 0)
        yield hw, f"http://127.0.0.1:{edge.port}"
        edge.abort()
        await edge.stop()


async def writer_for(
    guarded: tuple[headwater.Headwater, str], *scopes: str, queues: Sequence[str] = ("*",), of: str = "main"
) -> RemoteLogWriter:
    hw, url = guarded
    _, token = await hw.access_tokens(of).create("ada", scopes, queues=queues)
    return RemoteLogWriter(url, Access(token=token))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("count", [1, 100], ids=["small", "large"])
async def test_pushes_need_publish_for_every_queue_they_name(
    guarded: tuple[headwater.Headwater, str], count: int
) -> None:
    hw, _ = guarded
    reader = await writer_for(guarded, "consume", "subscribe")
    with pytest.raises(NotAllowed):
        await reader.commit(step(0, push(*range(count))))
    some = await writer_for(guarded, "publish", queues=["orders.*"])
    with pytest.raises(QueueMissing):
        await some.commit(step(0, push(*range(count), queue="orders.eu"), push(*range(count), queue="plans")))
    assert await hw.store.ask(ListQueues("main")) == []
    await some.commit(step(0, push(*range(count), queue="orders.eu")))
    segments = await hw.store.read(Lsn(0), Lsn(2**62), 10, ("main", "orders.eu"))
    assert {one.producer_sub for segment in segments for one in segment.records} == {"ada"}
    for used in (reader, some):
        await used.close()


async def test_a_stolen_upload_pushes_only_where_its_thief_may(guarded: tuple[headwater.Headwater, str]) -> None:
    hw, _ = guarded
    owner = await writer_for(guarded, "publish", queues=["plans"])
    upload = await owner._upload([list(cut([push(1, queue="plans")]))])
    for thief, told in (
        (await writer_for(guarded, "publish", queues=["orders"]), QueueMissing),
        (await writer_for(guarded, "publish", of="acme"), StagingLost),
    ):
        with pytest.raises(told):
            await thief._post("/v1/log/commit", {"upload": upload, "parts": 1}, CommitResponse)
        await thief.close()
    assert await kept(hw, "plans") == []
    await owner.close()


async def test_moving_a_group_needs_consume(guarded: tuple[headwater.Headwater, str]) -> None:
    hw, _ = guarded
    await hw.queue("orders").push(1)
    move = Transaction(operations=[Seek(queue="orders", group="g", lsn=Lsn(1))])
    publisher, consumer = await writer_for(guarded, "publish"), await writer_for(guarded, "consume", queues=["orders"])
    with pytest.raises(NotAllowed, match="consume"):
        await publisher.commit(move)
    await consumer.commit(move)
    assert [group.group for group in await hw.groups("orders")] == ["g"]
    for used in (publisher, consumer):
        await used.close()


# ── cutting ──


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.text(max_size=40), min_size=1, max_size=30)), max_size=6),
    st.integers(min_value=10, max_value=400),
)
def test_however_it_is_cut_the_records_of_a_partition_keep_their_order(
    lanes: list[tuple[str, list[str]]], bytes_max: int
) -> None:
    pushes = [push(*payloads, partition=name) for name, payloads in lanes]
    parts = list(gather(list(cut(pushes, bytes_max)), bytes_max))
    assert all(part for part in parts)
    for part in parts:
        assert len(part) == 1 or sum(len(piece.records) for piece in part) <= bytes_max
    pieces = [piece for part in parts for piece in part]
    for name in "ab":
        told = [one.data for piece in pieces if piece.partition == name for one in split_records(piece.records)]
        meant = [one.data for single in pushes if single.partition == name for one in single.records]
        assert list(map(bytes, told)) == list(map(bytes, meant))


# ── loads: records of a source elsewhere, each once ──


def load(*positions: int, source: str = "file:1", covers: Any = None, **about: Any) -> Load:
    ranges = ((positions[0], positions[-1] + 1),) if covers is None else covers
    records = [record(position) for position in positions]
    return Load(**{"queue": "totals", **about}, source=source, covers=ranges, positions=positions, records=records)


async def test_what_of_a_source_is_there_is_not_taken_in_again(server: Server, writer: RemoteLogWriter) -> None:
    first = await writer.load(load(0, 1, 5))
    assert (first.count, first.skipped) == (3, 0)
    again = await writer.load(load(1, 3, 5, 6))
    assert (again.count, again.skipped) == (1, 3)
    assert (await writer.load(load(0, source="file:2"))).count == 1
    assert (await writer.load(load(0, partition="p"))).count == 1
    assert sorted(await kept(server.hw)) == [0, 0, 0, 1, 5, 6]


@pytest.mark.parametrize("fault", [EverySecond(0), EverySecond(100), CutRequests(3)])
async def test_a_load_whose_answer_was_lost_is_sent_again_and_has_one_effect(server: Server, fault: Any) -> None:
    async with Proxy(server.port) as proxy:
        far = RemoteLogWriter(proxy.url, Access())
        proxy.fault = fault
        for begin in range(0, 50, 10):
            await far.load(load(*range(begin, begin + 10)))
        assert await kept(server.hw) == list(range(50))
        await far.close()


@pytest.mark.parametrize(
    "change",
    [
        {"positions": [0]},
        {"positions": [1, 1]},
        {"positions": [2, 1]},
        {"positions": [-1, 0]},
        {"covers": [[0, 1]]},
        {"covers": [[0, 2], [3, 3]]},
        {"covers": [[5, 2]]},
        {"source": ""},
        {"partition": ""},
        {"queue": f"{SYSTEM_PREFIX}jobs"},
        {"records": []},
        {"records": [{"data": 1}, {"data": 2, "producerSub": "somebody"}]},
        {"more": 1},
    ],
)
async def test_a_load_that_cannot_be_is_refused_and_changes_nothing(
    server: Server, writer: RemoteLogWriter, change: dict[str, Any]
) -> None:
    sound = {"queue": "o", "partition": "p", "source": "file:1", "covers": [[0, 2]], "positions": [0, 1]}
    body = {**sound, "records": [{"data": 1}, {"data": 2}], **change}
    with pytest.raises((InvalidInput, ServerRefused)):
        await writer._post(operation_path(Load), body, Loaded)
    assert await server.hw.store.ask(FindLastLsn()) == 0


async def test_a_load_needs_publish_for_its_queue(guarded: tuple[headwater.Headwater, str]) -> None:
    hw, _ = guarded
    reader = await writer_for(guarded, "consume", "subscribe")
    with pytest.raises(NotAllowed):
        await reader.load(load(0))
    some = await writer_for(guarded, "publish", queues=["orders.*"])
    with pytest.raises(QueueMissing):
        await some.load(load(0))
    assert await hw.store.ask(ListQueues("main")) == []
    await some.load(load(0, queue="orders.eu"))
    assert await kept(hw, "orders.eu") == [0]
    for used in (reader, some):
        await used.close()


async def test_who_has_no_token_is_told_where_it_is_looked_for(guarded: tuple[headwater.Headwater, str]) -> None:
    for access, told in (
        (Access(), "--token-file.*HEADWATER_TOKEN_FILE"),
        (Access(token="hw_" + "0" * 43), "^(?!.*file)"),
    ):
        writer = RemoteLogWriter(guarded[1], access)
        for asked in (writer.identity(), writer.load(load(0)), writer.commit(step(0, push(1)))):
            with pytest.raises(Unauthenticated, match=told):
                await asked
        await writer.close()


async def test_a_commit_goes_on_with_a_token_that_was_replaced_in_its_file(
    guarded: tuple[headwater.Headwater, str], tmp_path: Path
) -> None:
    hw, url = guarded
    file = tmp_path / "token"
    first, secret = await hw.access_tokens().create("first", ("publish",))
    file.write_text(secret)
    writer = RemoteLogWriter(url, Access(token_file=str(file)))
    await writer.commit(step(0, push(1)))
    _, secret = await hw.access_tokens().create("second", ("publish",))
    file.write_text(secret)
    await hw.access_tokens().revoke(first.id)
    await writer.commit(step(1, push(2)))
    assert await kept(hw) == [1, 2]
    await writer.close()


async def test_nobody_makes_the_source_of_others_look_loaded(guarded: tuple[headwater.Headwater, str]) -> None:
    """What one token says is here hides nothing from those who load with other rights."""
    hw, _ = guarded
    narrow = await writer_for(guarded, "publish", queues=["totals"])
    await narrow.load(load(0, covers=((0, 1_000),)))
    owner = await writer_for(guarded, "publish")
    assert (await owner.load(load(0, 1))).count == 2
    assert await kept(hw) == [0, 0, 1]
    for used in (narrow, owner):
        await used.close()
