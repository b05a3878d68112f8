"""A publication that somebody alters tells less than all, or more than was asked for: that is never passed over."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

import headwater
from headwater import capture
from headwater.capture.follower import Follower
from headwater.capture.publication import Member, Publication, faults_of, marks_differ
from headwater.errors import ResyncRequired, SourceUnfit
from tests.capture.shop import QUEUE, Shop, changes, follow, has_changes, short, state
from tests.waiting import expect_soon_async

# What somebody does to the publication {0} of the table {1}.
ALTERATIONS = {
    "a table is taken out": ["DROP TABLE {1}"],
    "a table is taken out and put back": ["DROP TABLE {1}", "ADD TABLE {1}"],
    "it has another table instead": ["SET TABLE {2}"],
    "it has another table as well": ["ADD TABLE {2}"],
    "it tells one kind of change": ["SET (publish = 'insert')"],
    "it told one kind of change for a time": [
        "SET (publish = 'insert')",
        "SET (publish = 'insert, update, delete, truncate')",
    ],
    "it tells some rows": ["SET TABLE {1} WHERE (id > 5)"],
    "it told some rows for a time": ["SET TABLE {1} WHERE (id > 5)", "SET TABLE {1}"],
    "it tells some columns": ["SET TABLE {1} (id)"],
    "it tells the tables of a schema": ["ADD TABLES IN SCHEMA {3}"],
    "it was called otherwise for a time": ["RENAME TO {3}", "RENAME TO {0}"],
}
altered = pytest.mark.parametrize("alteration", ALTERATIONS.values(), ids=ALTERATIONS.keys())


@pytest.fixture
def shop(shop: Shop) -> Iterator[Shop]:
    shop.run(f"CREATE TABLE {shop.name}.others (id int PRIMARY KEY)")
    yield shop
    shop.run(f"DROP PUBLICATION IF EXISTS {shop.name}")


def alter(shop: Shop, alteration: list[str]) -> None:
    """Something is written after every step."""
    name = f"headwater_{shop.name}"
    for number, step in enumerate(alteration, start=2):
        whose = shop.name if step == "RENAME TO {0}" else name
        shop.run(f"ALTER PUBLICATION {whose} " + step.format(name, shop.table, f"{shop.name}.others", shop.name))
        if "RENAME" not in step:
            shop.insert(number)
            shop.run(f"INSERT INTO {shop.name}.others VALUES ({number})")
            shop.run(f"UPDATE {shop.table} SET note = 'new' WHERE id = {number}")


def published(shop: Shop) -> list[object]:
    """What the server says of the publication: kinds of changes, tables, filters and columns."""
    kinds = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s"
    tables = "SELECT schemaname || '.' || tablename, rowfilter, cardinality(attnames) FROM pg_publication_tables"
    name = f"headwater_{shop.name}"
    return [*shop.run(kinds, name), *shop.run(f"{tables} WHERE pubname = %s", name)]


# ── it is told, and made right again ──


@altered
async def test_a_publication_that_was_altered_between_two_runs_is_told(
    hw: headwater.Headwater, shop: Shop, alteration: list[str]
) -> None:
    shop.insert(1)
    await follow(hw, shop)
    alter(shop, alteration)
    for _ in range(2):
        with pytest.raises(ResyncRequired, match=r"was altered.*--resync"):
            await follow(hw, shop)
    await follow(hw, shop, resync=True)
    assert published(shop) == [(True, True, True, True), (shop.table, None, 3)]
    shop.insert(9)
    await follow(hw, shop)
    found = short(await changes(hw))
    numbers = [number for (number,) in shop.run(f"SELECT id FROM {shop.table} ORDER BY id")]
    assert found == [
        ("read", 1),
        ("resync-required", None),
        *(("read", number) for number in numbers[:-1]),
        ("insert", 9),
    ]


@altered
async def test_a_publication_that_is_altered_while_it_is_followed_is_told(
    hw: headwater.Headwater, shop: Shop, alteration: list[str]
) -> None:
    await follow(hw, shop)
    shop.insert(1)
    following = asyncio.ensure_future(Follower(hw, shop.source(), QUEUE, status_seconds=0.1).run())
    await expect_soon_async(partial(has_changes, hw, 1))
    await asyncio.to_thread(alter, shop, alteration)
    with pytest.raises(ResyncRequired, match=r"--resync"):
        await asyncio.wait_for(following, 60)
    messages = await hw.queue(QUEUE).pop(batch=100, partitions=10)
    assert {message.partition for message in messages} == {shop.table}, "nobody asked for another table"
    with pytest.raises(ResyncRequired, match=r"was altered"):
        await follow(hw, shop)


async def test_one_that_is_altered_while_it_is_followed_begins_anew_when_asked_for(
    hw: headwater.Headwater, shop: Shop
) -> None:
    following = asyncio.ensure_future(Follower(hw, shop.source(), QUEUE, resync=True, status_seconds=0.1).run())
    shop.insert(1)
    await expect_soon_async(partial(has_changes, hw, 1))
    await asyncio.to_thread(shop.run, f"ALTER PUBLICATION headwater_{shop.name} SET (publish = 'insert')")
    shop.run(f"UPDATE {shop.table} SET note = 'new'")
    await expect_soon_async(partial(has_changes, hw, 3))
    following.cancel()
    await asyncio.wait([following])
    found = await changes(hw)
    assert short(found)[1:] == [("resync-required", None), ("read", 1)]
    assert found[2]["after"]["note"] == "new"


async def test_a_table_that_was_called_otherwise_for_a_time_is_told(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.run(f"ALTER TABLE {shop.table} RENAME TO away")
    shop.run(f"INSERT INTO {shop.name}.away VALUES (1)")
    shop.run(f"ALTER TABLE {shop.name}.away RENAME TO orders")
    with pytest.raises(ResyncRequired, match=r"was called \S+away for a time"):
        await follow(hw, shop)


# ── what we alter ourselves ──


def both(shop: Shop) -> capture.PostgresTables:
    return capture.PostgresTables(shop.address, [shop.table, f"{shop.name}.others"], name=shop.name)


async def test_tables_that_join_and_leave_are_no_reason_to_begin_anew(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    for number in (1, 2):
        await capture.follow(hw, both(shop), QUEUE, once=True)
        shop.insert(number)
        shop.run(f"INSERT INTO {shop.name}.others VALUES ({number})")
        await capture.follow(hw, both(shop), QUEUE, once=True)
        await follow(hw, shop)
        shop.run(f"INSERT INTO {shop.name}.others VALUES ({number + 10})")
        await follow(hw, shop)
    messages = await hw.queue(QUEUE).pop(batch=100, partitions=10)
    assert sorted((one.payload["table"], one.payload["key"]["id"]) for one in messages) == [
        (shop.table, 1),
        (shop.table, 2),
        (f"{shop.name}.others", 1),
        (f"{shop.name}.others", 2),
    ]


async def test_who_dies_after_a_table_joined_goes_on(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    source = both(shop)
    await source.open((await state(hw)).position)
    await source.close()
    shop.insert(1)
    await capture.follow(hw, both(shop), QUEUE, once=True)
    assert short(await changes(hw)) == [("insert", 1)]


async def test_a_table_that_joined_is_known_again_though_nothing_came(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    await capture.follow(hw, both(shop), QUEUE, once=True)
    alter(shop, [f"DROP TABLE {shop.name}.others", f"ADD TABLE {shop.name}.others"])
    with pytest.raises(ResyncRequired, match="was altered"):
        await capture.follow(hw, both(shop), QUEUE, once=True)


@pytest.mark.parametrize("step", [None, "SET (publish = 'insert')", "ADD TABLE {2}", "SET TABLE {1} WHERE (id > 5)"])
async def test_of_a_position_of_before_the_publication_must_tell_everything(
    hw: headwater.Headwater, shop: Shop, step: str | None
) -> None:
    await follow(hw, shop)
    position = msgspec.json.decode((await state(hw)).position)
    assert list(position.pop("marks")) == ["", shop.table]
    source = shop.source()
    try:
        if step is None:
            opened = await source.open(msgspec.json.encode(position).decode())
            assert opened == (await state(hw)).position
        else:
            alter(shop, [step])
            with pytest.raises(ResyncRequired, match="was altered"):
                await source.open(msgspec.json.encode(position).decode())
    finally:
        await source.close()


# ── one that was made for us ──


@pytest.fixture
def guest(shop: Shop) -> Iterator[Shop]:
    """The same shop, followed by somebody who owns nothing of it."""
    shop.run(f"CREATE ROLE guest_{shop.name} LOGIN REPLICATION")
    shop.run(f"GRANT USAGE ON SCHEMA {shop.name} TO guest_{shop.name}")
    shop.run(f"GRANT SELECT ON {shop.table} TO guest_{shop.name}")
    shop.run(f"GRANT pg_monitor TO guest_{shop.name}")
    owner, shop.address = shop.address, shop.address.replace("://", f"://guest_{shop.name}@").replace("postgres@/", "/")
    yield shop
    shop.address = owner
    shop.run(f"DROP OWNED BY guest_{shop.name}")
    shop.run(f"DROP ROLE guest_{shop.name}")


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ("TABLE {1} WITH (publish = 'insert')", "does not publish all of insert, update"),
        ("TABLE {1} WHERE (id > 5)", "has a row filter"),
        ("TABLE {1} (id)", "a list of columns"),
        ("TABLE {2}", r"does not have \S+orders; it has \S+others"),
        ("ALL TABLES", "it is FOR ALL TABLES"),
        ("TABLES IN SCHEMA {3}", "TABLES IN SCHEMA"),
    ],
)
async def test_one_that_somebody_made_for_us_and_tells_too_little_is_refused(
    hw: headwater.Headwater, guest: Shop, tables: str, fault: str
) -> None:
    names = (f"headwater_{guest.name}", guest.table, f"{guest.name}.others", guest.name)
    guest.run(f"CREATE PUBLICATION {names[0]} FOR {tables.format(*names)}")
    with pytest.raises(SourceUnfit, match=rf"{fault}.*CREATE PUBLICATION .* FOR TABLE"):
        await follow(hw, guest)
    assert guest.slots == []


async def test_one_that_somebody_made_for_us_is_followed_and_stays(
    hw: headwater.Headwater, guest: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    guest.run(f"CREATE PUBLICATION headwater_{guest.name} FOR TABLE {guest.table}")
    await follow(hw, guest)
    alter(guest, ["SET (publish = 'insert')"])
    with pytest.raises(ResyncRequired, match="was altered"):
        await follow(hw, guest)
    with pytest.raises(SourceUnfit, match="does not publish all of insert"):
        await follow(hw, guest, resync=True)
    guest.run(f"ALTER PUBLICATION headwater_{guest.name} SET (publish = 'insert, update, delete, truncate')")
    await follow(hw, guest)
    guest.insert(1)
    await follow(hw, guest)
    assert short(await changes(hw))[-2:] == [("read", 2), ("insert", 1)]
    with caplog.at_level(logging.WARNING):
        await capture.drop(hw, guest.source())
    assert "stays" in caplog.text
    assert guest.slots == []
    assert len(published(guest)) == 2


@pytest.mark.parametrize("tables", ["ALL TABLES", "TABLES IN SCHEMA {}"])
async def test_one_of_tables_without_names_is_refused_also_to_its_owner(
    hw: headwater.Headwater, shop: Shop, tables: str
) -> None:
    shop.run(f"CREATE PUBLICATION headwater_{shop.name} FOR {tables.format(shop.name)}")
    with pytest.raises(SourceUnfit, match=r"FOR ALL TABLES or TABLES IN SCHEMA.*Drop it"):
        await follow(hw, shop)


async def test_one_of_ours_that_tells_too_little_is_made_right_before_anything_is_followed(
    hw: headwater.Headwater, shop: Shop
) -> None:
    shop.run(
        f"CREATE PUBLICATION headwater_{shop.name} FOR TABLE {shop.table} (id) WHERE (id > 5) WITH (publish = 'insert')"
    )
    await follow(hw, shop)
    assert published(shop) == [(True, True, True, True), (shop.table, None, 3)]


# ── the rules, without a server ──


def test_a_publication_of_partitions_must_tell_them_as_their_table() -> None:
    members = {"a": Member("1.1", is_whole=True, is_partitioned=True)}
    found = Publication(1, "1.1", is_open=False, is_full=True, is_by_root=False, members=members)
    assert list(faults_of(found, ["a"], ["a"])) == [
        "it publishes partitions by their own names (publish_via_partition_root)"
    ]
    assert list(faults_of(found._replace(is_by_root=True), ["a"], ["a"])) == []


def test_only_what_is_needed_must_be_as_it_was() -> None:
    members = {name: Member("2.2", is_whole=True, is_partitioned=False) for name in ("a", "b")}
    found = Publication(1, "1.1", is_open=False, is_full=True, is_by_root=True, members=members)
    assert not marks_differ(found, {"": "1.1", "a": "2.2", "b": "3.3"}, ["a"])
    assert marks_differ(found, {"": "1.1", "a": "2.2", "b": "3.3"}, ["a", "b"])
    assert marks_differ(found, {"": "1.2", "a": "2.2"}, ["a"])
