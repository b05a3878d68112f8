"""What bears the name of a capture and is not its own: slots of other databases, stores and ends; publications."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import capture
from headwater.capture.postgres_control import Slot
from headwater.errors import InvalidOption, SourceBusy, SourceUnfit
from tests.capture.shop import QUEUE, Shop, changes, follow, short
from tests.cli.program import Program
from tests.postgres_server import USER

# ── another database of the same server ──


@pytest.fixture
def neighbour(shop: Shop) -> Iterator[str]:
    """The address of a database beside the shop's, with a table of the same name."""
    shop.run(f"CREATE DATABASE beside_{shop.name}")
    address = shop.address.replace("/postgres?", f"/beside_{shop.name}?")
    source = capture.PostgresTables(address, ["a"])
    connection = source._control._connected()
    connection.execute(f"CREATE SCHEMA {shop.name}".encode())
    connection.execute(f"CREATE TABLE {shop.table} (id int PRIMARY KEY)".encode())
    connection.close()
    yield address
    shop.run(f"DROP DATABASE beside_{shop.name} WITH (FORCE)")


def beside(shop: Shop, address: str) -> capture.PostgresTables:
    return capture.PostgresTables(address, [shop.table], name=shop.name)


async def goes_on(hw: headwater.Headwater, shop: Shop, number: int) -> bool:
    """Whether the capture of the shop gets what is new, without a copy."""
    shop.insert(number)
    await follow(hw, shop)
    return short(await changes(hw))[-1:] == [("insert", number)]


@pytest.mark.parametrize("resync", [False, True])
async def test_the_slot_of_another_database_is_refused_by_the_name_of_that_one(
    hw: headwater.Headwater, shop: Shop, neighbour: str, tmp_path: Path, resync: bool
) -> None:
    await follow(hw, shop)
    async with headwater.open(str(tmp_path / "other.db")) as other:
        with pytest.raises(InvalidOption, match=r"it is of the database postgres\. Take another --name"):
            await capture.follow(other, beside(shop, neighbour), QUEUE, once=True, resync=resync)
        assert await other.queues() == []
    assert await goes_on(hw, shop, 1)


async def test_whoever_has_lost_a_slot_does_not_begin_anew_in_that_of_another_database(
    hw: headwater.Headwater, shop: Shop, neighbour: str, tmp_path: Path
) -> None:
    async with headwater.open(str(tmp_path / "other.db")) as other:
        await capture.follow(other, beside(shop, neighbour), QUEUE, once=True)
        await beside(shop, neighbour).forget()
        await follow(hw, shop)
        for resync in (False, True):
            with pytest.raises(InvalidOption, match="of the database postgres"):
                await capture.follow(other, beside(shop, neighbour), QUEUE, once=True, resync=resync)
        with pytest.raises(InvalidOption, match="of the database postgres"):
            await capture.drop(other, beside(shop, neighbour))
    assert await goes_on(hw, shop, 1)


@pytest.mark.parametrize("more", [(), ("--of-another-store",)])
async def test_to_give_up_what_was_never_captured_harms_no_other_database(
    hw: headwater.Headwater, shop: Shop, neighbour: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    await follow(hw, shop)
    (tmp_path / "elsewhere").mkdir()
    program = Program(tmp_path / "elsewhere")
    about = (neighbour, "--table", shop.table, "--name", shop.name)
    ended = await asyncio.to_thread(program.run, "capture", "drop", *about, *more)
    assert ended.code
    assert "it is of the database postgres" in ended.err
    assert await goes_on(hw, shop, 1)


async def test_what_another_database_keeps_is_not_told_as_kept_for_us(
    hw: headwater.Headwater, shop: Shop, neighbour: str
) -> None:
    await follow(hw, shop)
    source = beside(shop, neighbour)
    assert await source.lag() == capture.Lag()
    await source.close()


# ── another store's ──


@pytest.mark.parametrize("resync", [False, True])
async def test_a_log_that_knows_nothing_of_a_slot_does_not_take_it(
    hw: headwater.Headwater, shop: Shop, tmp_path: Path, resync: bool
) -> None:
    await follow(hw, shop)
    async with headwater.open(str(tmp_path / "other.db")) as other:
        with pytest.raises(SourceUnfit, match=r"does not know.*--of-another-store"):
            await follow(other, shop, resync=resync)
        with pytest.raises(SourceUnfit, match=r"does not know.*--of-another-store"):
            await capture.drop(other, shop.source())
    assert await goes_on(hw, shop, 1)


@pytest.mark.parametrize("resync", [False, True])
async def test_who_has_given_a_capture_up_does_not_take_the_slot_that_another_made(
    hw: headwater.Headwater, shop: Shop, tmp_path: Path, resync: bool
) -> None:
    async with headwater.open(str(tmp_path / "other.db")) as other:
        await follow(other, shop)
        assert await capture.drop(other, shop.source())
        await follow(hw, shop)
        with pytest.raises(SourceUnfit, match="does not know"):
            await follow(other, shop, resync=resync)
        with pytest.raises(SourceUnfit, match="does not know"):
            await capture.drop(other, shop.source())
    assert await goes_on(hw, shop, 1)


async def test_what_a_store_that_is_no_more_left_is_given_up_when_that_is_meant(shop: Shop, tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "gone.db")) as gone:
        await follow(gone, shop)
    (tmp_path / "elsewhere").mkdir()
    program = Program(tmp_path / "elsewhere")
    about = ("capture", "drop", shop.address, "--table", shop.table, "--name", shop.name)
    refused = await asyncio.to_thread(program.run, *about)
    assert refused.code
    assert "--of-another-store" in refused.err
    assert len(shop.slots) == 1
    ended = await asyncio.to_thread(program.run, *about, "--of-another-store")
    assert ended.code == 0
    assert shop.slots == []


async def test_a_log_that_begins_while_another_makes_the_slot_waits_for_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would note a copy of its own there, and begin anew in the other's slot as soon as that one rests."""
    first, second = shop.source(), shop.source()
    found: list[Any] = []
    begin = first._open

    def meet(position: str) -> None:
        try:
            found.append(asyncio.run(second.keeps_place()))
        except SourceBusy as error:
            found.append(error)
        begin(position)

    monkeypatch.setattr("headwater.capture.postgres_control.RELEASE_SECONDS", 0.0)
    monkeypatch.setattr(first, "_open", meet)
    assert not await first.keeps_place()
    await first.open("")
    assert [type(one) for one in found] == [SourceBusy]
    # The server takes a moment to see that somebody hung up.
    monkeypatch.undo()
    await first.close()
    assert await second.keeps_place()
    await second.close()


# ── made for other ends ──


async def test_a_slot_of_another_kind_is_neither_taken_nor_dropped(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run("SELECT pg_create_physical_replication_slot(%s)", f"headwater_{shop.name}")
    for resync in (False, True):
        with pytest.raises(InvalidOption, match="it is a physical one"):
            await follow(hw, shop, resync=resync)
    for of_another_store in (False, True):
        with pytest.raises(InvalidOption, match="it is a physical one"):
            await capture.drop(hw, shop.source(), of_another_store=of_another_store)
    assert len(shop.slots) == 1


def test_a_slot_is_ours_only_with_our_plugin_and_in_our_database() -> None:
    ours = Slot("0/0", "reserved", False, "shop", "pgoutput", is_of_this_database=True)
    assert not ours.foreign_to()
    assert ours._replace(plugin="wal2json").foreign_to() == "it is for the plugin wal2json"
    assert ours._replace(is_of_this_database=False).foreign_to() == "it is of the database shop"


@pytest.fixture
def colleague(shop: Shop) -> Iterator[str]:
    """Somebody else who makes publications here."""
    name = f"colleague_{shop.name}"
    shop.run(f"CREATE ROLE {name}")
    shop.run(f"ALTER TABLE {shop.table} OWNER TO {name}")
    shop.run(f"GRANT CREATE ON DATABASE postgres TO {name}")
    shop.run(f"GRANT USAGE ON SCHEMA {shop.name} TO {name}")
    yield name
    shop.run(f"DROP OWNED BY {name} CASCADE")
    shop.run(f"DROP ROLE {name}")


def publish_as(shop: Shop, colleague: str, more: str = "") -> None:
    shop.run(f"SET ROLE {colleague}")
    shop.run(f"CREATE PUBLICATION headwater_{shop.name} FOR TABLE {shop.table} {more}")
    shop.run("RESET ROLE")


def published(shop: Shop) -> list[Any]:
    about = "SELECT pubinsert, pubupdate FROM pg_publication WHERE pubname = %s"
    return shop.run(about, f"headwater_{shop.name}")


async def test_somebody_elses_publication_is_followed_and_stays_also_where_we_may_drop_it(
    hw: headwater.Headwater, shop: Shop, colleague: str
) -> None:
    assert USER in shop.address, "a superuser may do anything"
    publish_as(shop, colleague)
    await follow(hw, shop)
    await capture.drop(hw, shop.source())
    assert shop.slots == []
    assert published(shop) == [(True, True)]


async def test_somebody_elses_publication_is_not_altered_also_where_we_may(
    hw: headwater.Headwater, shop: Shop, colleague: str
) -> None:
    publish_as(shop, colleague, "WITH (publish = 'insert')")
    with pytest.raises(SourceUnfit, match="does not publish all of insert"):
        await follow(hw, shop)
    assert published(shop) == [(True, False)]
