"""Tables of a real PostgreSQL server as a source of changes: every change once, in order, or it is told."""

import psycopg
import pytest

import headwater
from headwater import capture
from headwater.capture.follower import Follower
from headwater.errors import SourceUnreachable
from tests.capture.shop import QUEUE, Shop, changes, follow, short


async def test_rows_that_are_there_come_first_then_what_changes(hw: headwater.Headwater, shop: Shop) -> None:
    shop.insert(1, 2)
    await follow(hw, shop)
    shop.insert(3)
    shop.run(f"UPDATE {shop.table} SET note = 'new' WHERE id = 1")
    shop.run(f"DELETE FROM {shop.table} WHERE id = 2")
    shop.run(f"TRUNCATE {shop.table}")
    assert (await follow(hw, shop)).changes == 4
    found = await changes(hw)
    assert short(found) == [("read", 1), ("read", 2), ("insert", 3), ("update", 1), ("delete", 2), ("truncate", None)]
    assert found[3]["after"] == {"id": 1, "note": "new", "price": "1"}
    assert found[4]["before"] == {"id": 2}
    assert {one["table"] for one in found} == {shop.table}


async def test_a_change_has_the_time_of_its_commit_and_its_kind(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.insert(1)
    [(before,)] = shop.run("SELECT (extract(epoch FROM now()) * 1000000)::int8")
    await follow(hw, shop)
    [message] = await hw.queue(QUEUE).pop()
    assert message.type == "insert"
    assert 0 <= before - message.record.timestamp < 60_000_000


async def test_with_whole_rows_kept_an_update_tells_the_row_as_it_was(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"ALTER TABLE {shop.table} REPLICA IDENTITY FULL")
    shop.run(f"ALTER TABLE {shop.table} ALTER note SET STORAGE EXTERNAL")
    shop.run(f"INSERT INTO {shop.table} VALUES (1, repeat('x', 9000), 1)")
    await follow(hw, shop)
    shop.run(f"UPDATE {shop.table} SET price = 2")
    await follow(hw, shop)
    _, update = await changes(hw)
    assert update["key"] == {"id": 1}
    assert update["before"]["price"] == "1"
    assert update["after"] == {"id": 1, "note": "x" * 9_000, "price": "2"}
    assert update["unchanged"] == []


async def test_a_large_value_that_was_not_touched_is_named(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"ALTER TABLE {shop.table} ALTER note SET STORAGE EXTERNAL")
    shop.run(f"INSERT INTO {shop.table} VALUES (1, repeat('x', 9000), 1)")
    await follow(hw, shop)
    shop.run(f"UPDATE {shop.table} SET price = 2")
    await follow(hw, shop)
    _, update = await changes(hw)
    assert update["after"] == {"id": 1, "price": "2"}
    assert update["unchanged"] == ["note"]


async def test_transactions_come_whole_and_in_the_order_of_their_commits(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    with shop.server.connect() as early, early.transaction():
        early.execute(f"INSERT INTO {shop.table} VALUES (1)".encode())
        shop.insert(2)
        early.execute(f"INSERT INTO {shop.table} VALUES (3)".encode())
    with shop.server.connect() as undone, undone.transaction(force_rollback=True):
        undone.execute(f"INSERT INTO {shop.table} VALUES (4)".encode())
    await follow(hw, shop)
    assert short(await changes(hw)) == [("insert", 2), ("insert", 1), ("insert", 3)]


async def test_a_transaction_larger_than_a_commit_of_the_log_comes_once(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies in the middle of a transaction goes on in its middle."""
    await follow(hw, shop)
    shop.run(f"INSERT INTO {shop.table} SELECT n FROM generate_series(1, 3500) n")
    shop.insert(9_999)
    commit = Follower._commit
    taken = 0

    async def dying(self: Follower, batch: capture.Taken) -> None:
        nonlocal taken
        await commit(self, batch)
        taken += len(batch.changes)
        if taken >= 2_000:
            raise SourceUnreachable("the process ends here")

    monkeypatch.setattr(Follower, "_commit", dying)
    with pytest.raises(SourceUnreachable, match="ends here"):
        await follow(hw, shop)
    monkeypatch.undo()
    assert (await follow(hw, shop)).changes == 3_501 - taken
    ids = []
    while found := await changes(hw):
        ids += [one["key"]["id"] for one in found]
    assert ids == [*range(1, 3_501), 9_999]


async def test_lanes_keep_the_changes_of_a_row_together(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop, lanes=4)
    shop.insert(*range(20))
    shop.run(f"UPDATE {shop.table} SET note = 'again'")
    await follow(hw, shop, lanes=4)
    places: dict[int, set[str]] = {}
    messages = await hw.queue(QUEUE).pop(batch=100, partitions=10)
    for message in messages:
        places.setdefault(message.payload["key"]["id"], set()).add(message.partition)
    assert len(messages) == 40
    assert all(len(partitions) == 1 for partitions in places.values())
    assert {name for found in places.values() for name in found} == {f"{shop.table}/{lane}" for lane in range(4)}


async def test_a_row_that_gets_another_key_is_gone_in_its_old_lane_and_new_in_the_other(
    hw: headwater.Headwater, shop: Shop
) -> None:
    await follow(hw, shop, lanes=64)
    shop.insert(1)
    shop.run(f"UPDATE {shop.table} SET id = 2")
    await follow(hw, shop, lanes=64)
    messages = await hw.queue(QUEUE).pop(batch=100, partitions=64)
    told = sorted((message.payload["op"], message.payload["key"]["id"]) for message in messages)
    assert told == [("delete", 1), ("insert", 1), ("insert", 2)]


async def test_several_tables_are_partitions_of_one_queue(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"CREATE TABLE {shop.name}.items (name text PRIMARY KEY)")
    shop.run(f"INSERT INTO {shop.name}.items VALUES ('a')")
    shop.insert(1)
    names = [shop.table, f"{shop.name}.items"]
    source = capture.PostgresTables(shop.address, names, name=shop.name)
    await capture.follow(hw, source, QUEUE, once=True)
    messages = await hw.queue(QUEUE).pop(batch=10, partitions=2)
    assert {message.partition for message in messages} == set(names)


async def test_a_table_that_joins_later_is_followed_from_then_on(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.run(f"CREATE TABLE {shop.name}.items (id int PRIMARY KEY)")
    names = [shop.table, f"{shop.name}.items"]
    source = capture.PostgresTables(shop.address, names, name=shop.name)
    await capture.follow(hw, source, QUEUE, once=True)
    shop.run(f"INSERT INTO {shop.name}.items VALUES (5)")
    await capture.follow(hw, source, QUEUE, once=True)
    assert [one["table"] for one in await changes(hw)] == [names[1]]


async def test_a_column_that_is_added_meanwhile_is_told(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.insert(1)
    shop.run(f"ALTER TABLE {shop.table} ADD extra int DEFAULT 7")
    shop.insert(2)
    await follow(hw, shop)
    assert ["extra" in one["after"] for one in await changes(hw)] == [False, True]


async def test_a_row_of_the_first_copy_is_as_a_change_tells_it(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"CREATE DOMAIN {shop.name}.amount AS int CHECK (value > 0)")
    shop.run(f"ALTER TABLE {shop.table} ADD amount {shop.name}.amount DEFAULT 7")
    shop.run(f"ALTER TABLE {shop.table} ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
    shop.insert(1)
    await follow(hw, shop)
    shop.run(f"DELETE FROM {shop.table}")
    shop.insert(1)
    await follow(hw, shop)
    copied, _, told = await changes(hw)
    assert (copied["op"], told["op"]) == ("read", "insert")
    assert copied["after"] == told["after"] == {"id": 1, "note": "n1", "price": "1", "amount": "7"}


async def test_changes_of_a_partition_are_those_of_its_table(hw: headwater.Headwater, shop: Shop) -> None:
    table = f"{shop.name}.visits"
    shop.run(f"CREATE TABLE {table} (id int, year int, PRIMARY KEY (id, year)) PARTITION BY LIST (year)")
    for year in (2025, 2026):
        shop.run(f"CREATE TABLE {table}_{year} PARTITION OF {table} FOR VALUES IN ({year})")
        shop.run(f"INSERT INTO {table} VALUES ({year}, {year})")
    for _ in range(2):
        source = capture.PostgresTables(shop.address, [table], name=shop.name)
        await capture.follow(hw, source, QUEUE, once=True)
        shop.run(f"INSERT INTO {table} VALUES (1, 2025), (1, 2026) ON CONFLICT DO NOTHING")
    messages = await hw.queue(QUEUE).pop(batch=10)
    assert [(message.partition, message.payload["table"]) for message in messages] == [(table, table)] * 4
    assert [message.type for message in messages] == ["read", "read", "insert", "insert"]


async def test_without_a_first_copy_only_what_changes_comes(hw: headwater.Headwater, shop: Shop) -> None:
    shop.insert(1)
    await capture.follow(hw, shop.source(snapshot=False), QUEUE, once=True)
    shop.insert(2)
    await follow(hw, shop)
    assert short(await changes(hw)) == [("insert", 2)]


async def test_a_database_of_another_encoding_is_told_in_utf8(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"CREATE DATABASE {shop.name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    address = shop.address.replace("/postgres?", f"/{shop.name}?")
    try:
        with psycopg.connect(address, autocommit=True, client_encoding="utf8") as connection:
            connection.execute('CREATE TABLE sizes (id int PRIMARY KEY, "größe" text, more json)')
            for number in (1, 2):
                connection.execute("INSERT INTO sizes VALUES (%s, 'äöü', '[\"ß\"]')", (number,))
                source = capture.PostgresTables(address, ["public.sizes"], name=shop.name)
                await capture.follow(hw, source, QUEUE, once=True)
        await source.forget()
    finally:
        shop.run(f"DROP DATABASE {shop.name} WITH (FORCE)")
    rows = [one["after"] for one in await changes(hw)]
    assert rows == [{"id": number, "größe": "äöü", "more": ["ß"]} for number in (1, 2)]
