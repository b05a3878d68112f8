"""A push inside the user's own transaction: both commit or neither."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import headwater
from headwater import outbox
from headwater.errors import InvalidInput, InvalidName, QueueFull, StoreForeign, TooLarge
from tests.waiting import expect_soon_async


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def shop(path: str) -> Iterator[apsw.Connection]:
    """The user's own connection, to a file with a table of the user's own."""
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE shop_orders (id INTEGER)")
    yield connection
    connection.close()


def count(connection: apsw.Connection, table: str) -> int:
    return len(connection.execute(f"SELECT 1 FROM {table}").fetchall())


async def is_waiting(hw: headwater.Headwater) -> bool:
    return hw.queues_service.intentions.count > 0


def push_and_raise(connection: apsw.Connection) -> None:
    with connection:
        connection.execute("INSERT INTO shop_orders VALUES (7)")
        outbox.push(connection, "orders", {"id": 7})
        raise ZeroDivisionError


async def test_rows_and_message_commit_together(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        with shop:
            shop.execute("INSERT INTO shop_orders VALUES (7)")
            assert outbox.push(shop, "orders", {"id": 7}, partition="p", transaction_id="t", type="made") == 0
        [message] = await hw.queue("orders").pop(group="g", wait=5)
        assert (message.payload, message.partition, message.transaction_id, message.type) == (
            {"id": 7},
            "p",
            "t",
            "made",
        )
        assert count(shop, "shop_orders") == 1


async def test_rows_and_message_roll_back_together(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        with pytest.raises(ZeroDivisionError):
            push_and_raise(shop)
        assert await hw.queue("orders").pop(group="g") == []
        assert count(shop, "shop_orders") == 0


async def test_a_waiting_pop_is_woken_by_the_users_commit(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        await hw.queue("orders").push("first")
        await hw.queue("orders").ack(await hw.queue("orders").pop(group="g"))
        popped = hw.queue("orders").pop(group="g", wait=30)
        task = asyncio.get_running_loop().create_task(popped)
        await expect_soon_async(lambda: is_waiting(hw))
        with shop:
            outbox.push(shop, "orders", "second")
        assert [message.payload for message in await task] == ["second"]


async def test_offsets_stay_dense_between_both_ways_of_pushing(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        queue = hw.queue("orders")
        for number in range(0, 6, 2):
            assert (await queue.push(number, partition="p")).offset == number
            with shop:
                assert outbox.push(shop, "orders", number + 1, partition="p") == number + 1
        assert [message.payload for message in await queue.pop(group="g", batch=10)] == list(range(6))


async def test_a_later_push_with_the_same_id_is_a_duplicate(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        await hw.queue("orders").push(0, transaction_id="other")
        with shop:
            offset = outbox.push(shop, "orders", 1, transaction_id="same")
        receipt = await hw.queue("orders").push(1, transaction_id="same")
        assert receipt.duplicate
        assert receipt.offset == offset


async def test_a_push_outside_a_transaction_is_refused(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        with pytest.raises(InvalidInput, match="begin your transaction"):
            outbox.push(shop, "orders", 1)
        assert await hw.queues() == []


def test_a_database_without_our_tables_is_refused(shop: apsw.Connection) -> None:
    with pytest.raises(StoreForeign, match="adopt"), shop:
        outbox.push(shop, "orders", 1)


async def test_bad_input_changes_nothing(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        with pytest.raises(InvalidName), shop:
            outbox.push(shop, "no blanks", 1)
        with pytest.raises(TooLarge), shop:
            outbox.push(shop, "orders", "x" * 300_000)
        with pytest.raises(InvalidInput, match="Headwater's own"), shop:
            outbox.push(shop, "headwater/events", 1)
        assert await hw.queues() == []


async def test_the_interpreters_own_sqlite_is_refused_beside_ours(path: str, shop: apsw.Connection) -> None:
    """Too old, or a second library on a file that this process has open: either way the file could come to harm."""
    async with headwater.open(path, adopt=True):
        pass
    connection = sqlite3.connect(path)
    hw = headwater.open(path)
    try:
        await hw.start()
        connection.execute("BEGIN")
        with pytest.raises(InvalidInput, match="apsw"):
            outbox.push(connection, "orders", 1)
    finally:
        connection.rollback()
        await hw.close()
        connection.close()


@pytest.mark.parametrize("delay", [0, 60])
@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_full_queue_refuses_the_message_and_leaves_the_rows_to_their_owner(
    path: str, shop: apsw.Connection, partition: str | None, delay: int
) -> None:
    async with headwater.open(path, adopt=True) as hw:
        await hw.queue("orders").configure(size_max=2)
        await hw.queue("orders").push("first", partition="other")
        with shop:
            shop.execute("INSERT INTO shop_orders VALUES (7)")
            outbox.push(shop, "orders", "second", partition=partition, delay=delay)
            with pytest.raises(QueueFull, match="holds 2 waiting records of at most 2"):
                outbox.push(shop, "orders", "third", partition="new")
        assert count(shop, "shop_orders") == 1
        assert {name for (name,) in shop.execute("SELECT name FROM hw_partitions").fetchall()}.isdisjoint({"new"})
        assert count(shop, "hw_segments") + count(shop, "hw_delayed") == 2
        await hw.queue("orders").ack(await hw.queue("orders").pop(batch=10))
        with shop:
            outbox.push(shop, "orders", "fourth", partition=partition)


async def test_a_partition_too_many_is_refused_in_the_users_transaction(path: str, shop: apsw.Connection) -> None:
    async with headwater.open(path, adopt=True) as hw:
        await hw.queue("orders").configure(partitions_max=16)
        with shop:
            for number in range(16):
                outbox.push(shop, "orders", number, partition=str(number))
            with pytest.raises(QueueFull, match="partitions_max"):
                outbox.push(shop, "orders", 16, partition="16")
            outbox.push(shop, "orders", 17, partition="0")
        found = [message.payload for message in await hw.queue("orders").pop(batch=100)]
        assert sorted(found) == [*range(16), 17]
