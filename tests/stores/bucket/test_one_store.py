"""A place has one store: nobody makes another where anything of one lies, of either kind, by whatever address."""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.config import load_config
from headwater.errors import HeadwaterError, InvalidOption, StoreDamaged, StoreForeign
from headwater.stores.bucket.address import BucketSettings, Ship
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.folder import FolderObjects
from headwater.stores.bucket.image_keeper import ImageKeeper
from headwater.stores.bucket.images import ImageLook
from headwater.stores.bucket.keeper import find_ship
from headwater.stores.bucket.looking import Look, Names
from headwater.stores.open import open_reader
from tests.cli.program import Program
from tests.contracts.factories import in_memory
from tests.stores.bucket.simulated_bucket import KEY, TRAITS, Way, World, run_virtually

BOTH = [Ship.CHAIN, Ship.IMAGE]
SEEDS = 60
FIRST = "log.sqlite-log/000000000001"


@pytest.fixture
def folder() -> Iterator[Path]:
    with in_memory() as place:
        yield Path(place)


def other_than(ship: Ship) -> Ship:
    return Ship.IMAGE if ship is Ship.CHAIN else Ship.CHAIN


def opened(address: str | Path) -> headwater.Headwater:
    return headwater.open(str(address), housekeeping=False)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def popped(address: str) -> list[object]:
    async with opened(address) as hw:
        return [message.payload for message in await hw.queue("orders").pop(batch=10)]


async def refused(address: str | Path, told: str, error: type[HeadwaterError] = StoreForeign) -> None:
    with pytest.raises(error, match=told):
        async with opened(address) as hw:
            await hw.queue("orders").push("elsewhere")


# ── chain and image ──


async def test_a_chain_that_has_no_base_yet_is_not_replaced_by_an_image(folder: Path) -> None:
    address = f"file://{folder}/log.sqlite"
    async with opened(address) as hw:
        await hw.queue("orders").push("first")
        assert not (folder / "log.sqlite").exists()
        await refused(f"{address}?ship=image", "ship=chain")
        await hw.queue("orders").push("second")
    assert await popped(address) == ["first", "second"]


@pytest.mark.parametrize("ship", BOTH)
async def test_a_store_that_was_begun_and_never_written_is_of_its_kind(folder: Path, ship: Ship) -> None:
    address = f"file://{folder}/log.sqlite"
    async with opened(f"{address}?ship={ship}"):
        pass
    (folder / "log.sqlite").unlink()
    await refused(f"{address}?ship={other_than(ship)}", f"ship={ship}")
    assert not (folder / "log.sqlite").exists()


@pytest.mark.parametrize("ship", BOTH)
async def test_a_store_that_is_made_while_somebody_looks_for_it_is_of_its_kind(folder: Path, ship: Ship) -> None:
    """Between the look at its first object and the one at all of them."""

    class Meanwhile(FolderObjects):
        async def names(self, prefix: str) -> list[str]:
            if not await super().names(prefix):
                async with opened(f"file://{folder}/log.sqlite?ship={ship}&lease_seconds=0"):
                    pass
                (folder / "log.sqlite").unlink()
            return await super().names(prefix)

    objects = Meanwhile(str(folder))
    assert await find_ship(Look(objects, Names("log.sqlite"))) == ship
    objects.close()


@pytest.mark.parametrize(
    ("left", "ship"), [("000000000004", Ship.CHAIN), ("000000000001-00000000002a", Ship.IMAGE)], ids=["entry", "note"]
)
async def test_a_log_without_its_beginning_keeps_its_place(folder: Path, left: str, ship: Ship) -> None:
    (folder / "log.sqlite-log").mkdir()
    (folder / "log.sqlite-log" / left).write_bytes(b"-")
    await refused(f"file://{folder}/log.sqlite?ship={other_than(ship)}", f"ship={ship}")
    assert snapshot(folder) == {f"log.sqlite-log/{left}": b"-"}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("lease_seconds", [0, 60])
async def test_a_store_of_images_whose_image_is_gone_is_not_made_anew(
    folder: Path, times: int, lease_seconds: int
) -> None:
    address = f"file://{folder}/log.sqlite?ship=image&lease_seconds={lease_seconds}"
    for number in range(times):
        async with opened(address) as hw:
            await hw.queue("orders").push(number)
    image = (folder / "log.sqlite").read_bytes()
    (folder / "log.sqlite").unlink()
    left = snapshot(folder)
    for kept in (address, f"file://{folder}/log.sqlite"):
        await refused(kept, "log.sqlite is missing: it was written", StoreDamaged)
        reader = open_reader(kept, load_config({}))
        with pytest.raises(StoreDamaged, match="is missing"):
            await reader.open()
    assert snapshot(folder) == left
    (folder / "log.sqlite").write_bytes(image)
    assert await popped(address) == list(range(times))


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\xff", b'{"epoch": "one"}'])
async def test_a_note_that_is_none_is_told_by_name(folder: Path, garbage: bytes) -> None:
    address = f"file://{folder}/log.sqlite?ship=image"
    async with opened(address) as hw:
        await hw.queue("orders").push("kept")
    (note,) = [path for path in (folder / "log.sqlite-log").iterdir() if "-" in path.name]
    data = note.read_bytes()
    note.write_bytes(garbage)
    left = snapshot(folder)
    await refused(address, f"{note.name} is no note of a store", StoreDamaged)
    assert snapshot(folder) == left
    note.write_bytes(data)
    assert await popped(address) == ["kept"]


async def test_a_store_of_images_of_before_is_opened_as_it_was(folder: Path) -> None:
    """It has no object that a chain would begin with."""
    address = f"file://{folder}/log.sqlite"
    async with opened(f"{address}?ship=image") as hw:
        await hw.queue("orders").push("kept")
    (folder / FIRST).unlink()
    await refused(f"{address}?ship=chain", "ship=image")
    assert await popped(address) == ["kept"]


async def make_both(seed: int) -> list[str]:
    """Which of two stores of different kinds is made, by brokers who meet an empty place at the same moment."""
    world = World(random.Random(seed))
    now = asyncio.get_running_loop().time
    settings = BucketSettings(lease_seconds=0.0)
    chain = ChainKeeper(Look(Way(world), Names(KEY)), TRAITS, settings, now)
    images = ImageKeeper(ImageLook(Way(world), Names(KEY)), TRAITS, settings, now)
    made = await asyncio.gather(chain.take_over(), images.take_over(), return_exceptions=True)
    assert all(isinstance(one, bytearray | StoreForeign) for one in made), made
    kinds = [kind for kind, one in zip(BOTH, made, strict=True) if not isinstance(one, StoreForeign)]
    assert kinds == [await find_ship(Look(Way(world), Names(KEY)))]
    return [str(kind) for kind in kinds]


def test_of_a_chain_and_images_that_are_made_at_once_one_is() -> None:
    won = [run_virtually(lambda seed=seed: make_both(seed)) for seed in range(SEEDS)]  # type: ignore[misc]
    assert {kind for (kind,) in won} == {"chain", "image"}


# ── copies ──


@pytest.mark.parametrize("ship", ["", "?ship=image", "?ship=chain"])
async def test_nothing_is_copied_onto_a_chain_that_has_no_base_yet(folder: Path, tmp_path: Path, ship: str) -> None:
    source, address = str(tmp_path / "source.db"), f"file://{folder}/log.sqlite"
    async with opened(source) as hw:
        await hw.queue("orders").push("copied")
    async with opened(f"{address}?lease_seconds=0") as hw:
        await hw.queue("orders").push("there first")
        left = snapshot(folder)
    # As a broker leaves it that is killed.
    put_back(folder, left)
    assert not (folder / "log.sqlite").exists()
    ended = await asyncio.to_thread(Program(tmp_path).run, "copy", source, f"{address}{ship}", "--keep")
    assert ended.code != 0
    assert "kept as a chain" in ended.err or "has something in it already" in ended.err
    assert await popped(address) == ["there first"]


def put_back(folder: Path, objects: dict[str, bytes]) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()
    for key, data in objects.items():
        (folder / key).write_bytes(data)


# ── files and buckets ──


@pytest.mark.parametrize("has_base", [False, True], ids=["no base", "base"])
@pytest.mark.parametrize("ship", BOTH)
async def test_a_store_in_a_folder_is_not_opened_as_a_file(folder: Path, ship: Ship, has_base: bool) -> None:
    address, path = f"file://{folder}/log.sqlite", folder / "log.sqlite"
    if has_base:
        async with opened(f"{address}?ship={ship}"):
            pass
    async with opened(f"{address}?ship={ship}") as hw:
        await hw.queue("orders").push("kept")
        before = snapshot(folder)
        await refused(path, f"open it as file://{path}")
        with pytest.raises(StoreForeign, match=f"open it as file://{path}"):
            await open_reader(path, load_config({})).open()
        assert snapshot(folder) == before
    assert await popped(address) == ["kept"]


async def test_a_base_alone_is_not_opened_as_a_file(folder: Path, tmp_path: Path) -> None:
    async with opened(f"file://{folder}/log.sqlite") as hw:
        await hw.queue("orders").push("kept")
    alone = tmp_path / "fetched.sqlite"
    alone.write_bytes((folder / "log.sqlite").read_bytes())
    await refused(alone, f"open it as file://{alone}")
    assert await popped(f"file://{alone}") == ["kept"]


async def test_a_file_is_not_opened_as_a_bucket(folder: Path) -> None:
    path = folder / "log.sqlite"
    async with opened(path) as hw:
        await hw.queue("orders").push("kept")
        for ship in BOTH:
            await refused(f"file://{path}?ship={ship}", "not put there by Headwater")
        await hw.queue("orders").push("more")
    assert await popped(str(path)) == ["kept", "more"]


# ── names ──


@pytest.mark.parametrize("name", ["x", "000000000009", "000000000001-00000000002a"])
@pytest.mark.parametrize("ship", BOTH)
async def test_no_store_is_made_in_the_log_of_another(folder: Path, ship: Ship, name: str) -> None:
    address = f"file://{folder}/log.sqlite"
    async with opened(f"{address}?ship={ship}") as hw:
        await hw.queue("orders").push("kept")
        before = set(snapshot(folder))
        await refused(f"{address}-log/{name}", "in the log of another store", InvalidOption)
        assert set(snapshot(folder)) == before
    assert await popped(address) == ["kept"]


async def test_no_store_is_made_whose_log_holds_another(folder: Path) -> None:
    inner = folder / "log.sqlite-log"
    inner.mkdir()
    async with opened(f"file://{inner}/x") as hw:
        await hw.queue("orders").push("kept")
    await refused(f"file://{folder}/log.sqlite", "not put there by Headwater")
    assert await popped(f"file://{inner}/x") == ["kept"]


@pytest.mark.parametrize("ending", ["-log", "-secret", ".part"])
async def test_a_name_that_another_store_gives_its_objects_is_refused(folder: Path, ending: str) -> None:
    await refused(f"file://{folder}/log.sqlite{ending}", "choose a name with another ending", InvalidOption)
    assert snapshot(folder) == {}


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "dangling"])
async def test_a_link_is_another_name_of_the_store_that_it_leads_to(folder: Path, is_there: bool) -> None:
    address, link = f"file://{folder}/log.sqlite", folder / "link.sqlite"
    link.symlink_to("log.sqlite")
    if is_there:
        async with opened(address):
            pass
    async with opened(f"file://{link}") as hw:
        await hw.queue("orders").push("kept")
    assert link.is_symlink()
    assert await popped(address) == ["kept"]


# ── room ──


async def push_much(hw: headwater.Headwater) -> None:
    for _ in range(100):
        await hw.queue("orders").push(os.urandom(60_000).hex())


async def test_a_store_at_its_cap_says_so_and_what_to_do(folder: Path) -> None:
    address = f"file://{folder}/log.sqlite"
    async with opened(f"{address}?bytes_max=8388608") as hw:
        with pytest.raises(headwater.StoreFull, match="has reached its bytes_max of 8,388,608 bytes; drop records, or"):
            await push_much(hw)
    async with opened(f"{address}?bytes_max=67108864") as hw:
        await push_much(hw)
    size = (folder / "log.sqlite").stat().st_size
    async with opened(f"{address}?bytes_max=8388608") as hw:
        with pytest.raises(headwater.StoreFull, match="bytes_max"):
            await hw.queue("orders").push(os.urandom(60_000).hex())
    assert (folder / "log.sqlite").stat().st_size <= size


async def test_a_cap_that_was_lowered_is_one_though_the_file_has_room(folder: Path, tmp_path: Path) -> None:
    """What holds nothing in a file that is larger than its cap by now would take pushes for long."""
    address = f"file://{folder}/log.sqlite"
    async with opened(f"{address}?bytes_max=67108864") as hw:
        await push_much(hw)
        await hw.queue("others").push_many([os.urandom(60_000).hex() for _ in range(20)])
        await hw.queue("others").delete()
    lowered = f"{address}?bytes_max=8388608"
    async with opened(lowered) as hw:
        assert not await hw.store.has_room()
        for _ in range(3):
            with pytest.raises(headwater.StoreFull, match="bytes_max of 8,388,608 bytes"):
                await hw.queue("others").push(os.urandom(60_000).hex())
        # What is there can be read, worked on and dropped.
        (message,) = await hw.queue("orders").pop(batch=1)
        await message.ack()
    found = (await asyncio.to_thread(Program(tmp_path).run, "--store", lowered, "doctor")).out
    assert "of a bytes_max of" in found
    assert "larger bytes_max" in found
    async with opened(lowered) as hw:
        await hw.queue("orders").delete()
        assert await hw.store.has_room()
        await hw.queue("orders").push("there is room again")
    assert (folder / "log.sqlite").stat().st_size < 8_388_608
    assert await popped(address) == ["there is room again"]
