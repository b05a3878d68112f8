"""Objects of a store that are deleted, or put back to an older state, under a broker that holds it: it says so, answers
nothing more, and writes nothing more."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

import headwater
from headwater.errors import HeadwaterError, StoreReplaced
from headwater.stores.bucket.address import Ship
from headwater.stores.bucket.s3 import S3Objects
from headwater.stores.bucket.store import BucketStore
from headwater.stores.contract import Holder
from headwater.stores.questions import FindLastLsn
from tests.contracts.factories import in_memory
from tests.doors.live_door import on_the_edge
from tests.seaweed_server import BUCKET, SeaweedServer
from tests.waiting import expect_soon_async

PATIENCE_SECONDS = 60.0
LEASE_SECONDS = 0.6
BOTH = [Ship.CHAIN, Ship.IMAGE]


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as place:
        yield Path(place)


@pytest.fixture(scope="module")
def seaweed() -> Iterator[SeaweedServer]:
    made = SeaweedServer()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here waits for long."""
    monkeypatch.setattr("headwater.stores.bucket.chain_keeper.WATCH_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr("headwater.stores.bucket.chain_keeper.MISS_SECONDS", 0.01)


def at(folder: Path, ship: Ship, lease_seconds: float = LEASE_SECONDS) -> str:
    return f"file://{folder}/log.sqlite?ship={ship}&lease_seconds={lease_seconds}"


def opened(address: str) -> headwater.Headwater:
    return headwater.open(address, housekeeping=False)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All objects, by key."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put_back(folder: Path, objects: dict[str, bytes]) -> None:
    """The bucket as it was."""
    delete_everything(folder)
    for key, data in objects.items():
        (folder / key).parent.mkdir(exist_ok=True)
        (folder / key).write_bytes(data)


def delete_everything(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


async def push(hw: headwater.Headwater) -> None:
    await hw.queue("orders").push("lost")


async def ask(hw: headwater.Headwater) -> None:
    await hw.store.ask(FindLastLsn())


USES: dict[str, Callable[[headwater.Headwater], Awaitable[None]]] = {"push": push, "ask": ask}


async def use_until_told(hw: headwater.Headwater, use: str) -> StoreReplaced:
    """What is told at last; what is answered before is not safe, and that is noticed soon."""
    told: list[StoreReplaced] = []

    async def is_told() -> bool:
        try:
            await USES[use](hw)
        except StoreReplaced as error:
            told.append(error)
        await asyncio.sleep(0.02)
        return bool(told)

    await expect_soon_async(is_told, PATIENCE_SECONDS)
    return told[0]


async def push_until_watched(hw: headwater.Headwater, ship: Ship) -> None:
    """More, until the broker is to look at some of it. Images are looked at with every answer."""
    await hw.queue("orders").push("newer")
    keeper = hw.store._keeper._keeper  # type: ignore[attr-defined]

    async def is_watched() -> bool:
        await hw.queue("orders").push("newer")
        return ship is Ship.IMAGE or keeper._watched.position > 4

    await expect_soon_async(is_watched, PATIENCE_SECONDS)


async def assert_nothing_goes_on(hw: headwater.Headwater) -> None:
    for use in USES.values():
        with pytest.raises(StoreReplaced, match="open the store again"):
            await use(hw)
    with pytest.raises(StoreReplaced):
        hw.store.check()


async def left_by_another(folder: Path, ship: Ship) -> bytes:
    """The base of a store elsewhere."""
    async with opened(f"file://{folder}/other.sqlite?ship={ship}") as hw:
        for number in range(5):
            await hw.queue("orders").push(number)
    return (folder / "other.sqlite").read_bytes()


@pytest.mark.parametrize("ship", BOTH)
async def test_a_holder_of_a_chain_says_that_the_base_of_another_store_has_appeared(folder: Path, ship: Ship) -> None:
    foreign = await left_by_another(folder, ship)
    async with opened(at(folder, Ship.CHAIN)) as hw:
        await hw.queue("orders").push("first")
        (folder / "log.sqlite").write_bytes(foreign)
        await use_until_told(hw, "push")
        await assert_nothing_goes_on(hw)
    assert (folder / "log.sqlite").read_bytes() == foreign


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("lease_seconds", [LEASE_SECONDS, 0.0], ids=["lease", "no lease"])
@pytest.mark.parametrize("ship", BOTH)
async def test_a_holder_says_that_its_objects_were_deleted(
    folder: Path, ship: Ship, lease_seconds: float, use: str
) -> None:
    async with opened(at(folder, ship, lease_seconds)) as hw:
        await hw.queue("orders").push("before")
        delete_everything(folder)
        assert "Bring them back" in str(await use_until_told(hw, use))
        await assert_nothing_goes_on(hw)
        delete_everything(folder)
    assert snapshot(folder) == {}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("lease_seconds", [LEASE_SECONDS, 0.0], ids=["lease", "no lease"])
@pytest.mark.parametrize("ship", BOTH)
async def test_a_holder_says_that_older_objects_were_put_in_their_place(
    folder: Path, ship: Ship, lease_seconds: float, use: str
) -> None:
    async with opened(at(folder, ship, lease_seconds)) as hw:
        await hw.queue("orders").push("old")
        old = snapshot(folder)
        await push_until_watched(hw, ship)
        put_back(folder, old)
        await use_until_told(hw, use)
        await assert_nothing_goes_on(hw)
        put_back(folder, old)
    # Not even a last base: what was put back is what there is.
    kept = snapshot(folder)
    assert {key: kept[key] for key in old} == old
    async with opened(at(folder, ship, 0)) as again:
        (message,) = await again.queue("orders").pop(batch=9)
        assert message.payload == "old"


@pytest.mark.parametrize("ship", BOTH)
async def test_a_holder_says_that_another_store_lies_in_its_place(folder: Path, ship: Ship, tmp_path: Path) -> None:
    async with opened(at(tmp_path, ship)) as other:
        for number in range(20):
            await other.queue("orders").push(number)
    async with opened(at(folder, ship)) as hw:
        for number in range(3):
            await hw.queue("orders").push(number)
        put_back(folder, snapshot(tmp_path))
        await use_until_told(hw, "ask")
        await assert_nothing_goes_on(hw)


@pytest.mark.parametrize("is_due", [False, True], ids=["watched", "renewed"])
async def test_a_holder_says_that_its_base_is_gone(folder: Path, is_due: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(at(folder, Ship.CHAIN)) as hw:
        await hw.queue("orders").push("before")
    if is_due:
        monkeypatch.setattr("headwater.stores.bucket.chain_keeper.BASE_ENTRIES_MAX", 4)
        monkeypatch.setattr("headwater.stores.bucket.chain_keeper.ChainKeeper._watch", asyncio.Event().wait)
    async with opened(at(folder, Ship.CHAIN)) as hw:
        (folder / "log.sqlite").unlink()
        assert "log.sqlite was written and is gone" in str(await use_until_told(hw, "push"))
        await assert_nothing_goes_on(hw)
    assert not (folder / "log.sqlite").exists()


async def test_what_a_look_cannot_tell_is_no_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that forgets for a moment, or refuses to tell, has lost nothing."""
    answers: list[bool | HeadwaterError] = [False, False, True, headwater.StoreFailed("not allowed"), False, True]
    asked = 0

    async def tell(*arguments: object) -> bool:
        nonlocal asked
        asked += 1
        answer = answers.pop(0) if answers else True
        if isinstance(answer, HeadwaterError):
            raise answer
        return answer

    for name in ("keeps_entry", "keeps_base"):
        monkeypatch.setattr(f"headwater.stores.bucket.looking.Look.{name}", tell)
    async with opened(at(folder, Ship.CHAIN)) as hw:

        async def is_asked_enough() -> bool:
            await hw.queue("orders").push("kept")
            return asked > 8

        await expect_soon_async(is_asked_enough, PATIENCE_SECONDS)
        assert not answers


async def test_an_idle_holder_without_a_lease_asks_for_nothing(folder: Path) -> None:
    async with opened(at(folder, Ship.CHAIN, 0)) as hw:
        await hw.queue("orders").push("before")
        store = hw.store
        assert isinstance(store, BucketStore)
        keeper = store._keeper._keeper

        async def is_over() -> bool:
            before = store.numbers()["bucket_gets_total"]
            await asyncio.sleep(LEASE_SECONDS)
            return store.numbers()["bucket_gets_total"] == before

        # One look at what was pushed, which may still be under way, then none.
        await expect_soon_async(lambda: is_quiet(keeper), PATIENCE_SECONDS)
        await expect_soon_async(is_over, PATIENCE_SECONDS)
        gets = store.numbers()["bucket_gets_total"]
        await asyncio.sleep(3 * LEASE_SECONDS)
        assert store.numbers()["bucket_gets_total"] == gets


async def is_quiet(keeper: object) -> bool:
    return not keeper._answers  # type: ignore[attr-defined]


@pytest.mark.parametrize("ship", BOTH)
async def test_those_who_wait_are_told(folder: Path, ship: Ship) -> None:
    async with opened(at(folder, ship)) as hw:
        job = await hw.jobs.add(command="true")
        waiting = [
            asyncio.ensure_future(hw.queue("orders").pop(wait=PATIENCE_SECONDS)),
            asyncio.ensure_future(hw.jobs.wait(job.id)),
        ]
        await asyncio.sleep(0.05)
        delete_everything(folder)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_SECONDS / 2)
        assert [type(answer) for answer in answers] == [StoreReplaced] * 2


@pytest.mark.parametrize("ship", BOTH)
async def test_a_server_without_its_objects_answers_nothing_but_that(folder: Path, ship: Ship) -> None:
    address = at(folder, ship)
    async with opened(address) as hw, on_the_edge(hw) as url, httpx.AsyncClient(base_url=url) as client:
        message = {"items": [{"queue": "orders", "payload": 1}]}
        assert (await client.post("/api/v1/push", json=message)).status_code == 201
        delete_everything(folder)

        async def is_told() -> bool:
            return (await client.post("/api/v1/push", json=message)).status_code == 503

        await expect_soon_async(is_told, PATIENCE_SECONDS)
        answers = [
            await client.post("/api/v1/push", json=message),
            await client.get("/api/v1/pop/queue/orders"),
            await client.get("/health"),
            await client.get("/ready"),
        ]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "store_replaced")}


@pytest.mark.parametrize("ship", BOTH)
async def test_who_waits_for_the_store_makes_no_new_one_in_its_place(folder: Path, ship: Ship) -> None:
    async with opened(at(folder, ship, 3_600)) as hw:
        await hw.queue("orders").push("before")
        waiting = BucketStore(at(folder, ship, 3_600), headwater.Config())
        waiting.stand_by(Holder("http://127.0.0.1:9"))
        opening = asyncio.ensure_future(waiting.open())

        async def has_met() -> bool:
            return waiting.held_by() is not None

        await expect_soon_async(has_met, PATIENCE_SECONDS)
        delete_everything(folder)
        with pytest.raises(StoreReplaced):
            await asyncio.wait_for(opening, PATIENCE_SECONDS)
        assert snapshot(folder) == {}


@pytest.mark.parametrize("ship", BOTH)
async def test_objects_at_s3_are_missed_as_well(
    seaweed: SeaweedServer, ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed.environment.items():
        monkeypatch.setenv(name, value)
    key = seaweed.new_key()
    async with opened(f"s3://{BUCKET}/{key}?ship={ship}&lease_seconds={LEASE_SECONDS}") as hw:
        await hw.queue("orders").push("before")
        await empty(seaweed, key)
        await use_until_told(hw, "push")
        await assert_nothing_goes_on(hw)


async def empty(seaweed: SeaweedServer, key: str) -> None:
    objects = S3Objects(BUCKET, seaweed.environment)
    await objects.delete([key, *await objects.names(f"{key}-log/")])
