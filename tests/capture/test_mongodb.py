"""Collections of MongoDB as a source of changes, through the real driver against a stand-in for the server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headwater
from headwater import capture
from headwater.errors import InvalidOption, ResyncRequired, SourceUnfit
from tests.capture.mongo_server import MongoServer
from tests.waiting import expect_soon_async

ORDERS = "shop.orders"


@pytest.fixture
async def mongo() -> AsyncIterator[MongoServer]:
    server = MongoServer()
    await server.start()
    yield server
    await server.stop()


async def follow(hw: headwater.Headwater, mongo: MongoServer, **options: Any) -> capture.Captured:
    source = capture.MongoCollections(mongo.address, [ORDERS])
    return await capture.follow(hw, source, "changes", once=True, **options)


async def changes(hw: headwater.Headwater) -> list[dict[str, Any]]:
    messages = await hw.queue("changes").pop(group="test", batch=1_000)
    for message in messages:
        await message.ack()
    return [message.payload for message in messages]


def short(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["op"], (one["key"] or {}).get("_id"), (one["after"] or {}).get("total")) for one in found]


async def test_documents_that_are_there_come_first_then_what_changes(
    hw: headwater.Headwater, mongo: MongoServer
) -> None:
    mongo.insert(ORDERS, {"_id": 1, "total": 10})
    await follow(hw, mongo)
    mongo.insert(ORDERS, {"_id": 2, "total": 20})
    mongo.update(ORDERS, 1, total=11)
    mongo.delete(ORDERS, 2)
    mongo.insert("shop.others", {"_id": 9})
    assert (await follow(hw, mongo)).changes == 3
    found = await changes(hw)
    assert short(found) == [("read", 1, 10), ("insert", 2, 20), ("update", 1, 11), ("delete", 2, None)]
    assert found[2]["before"] == {"_id": 1, "total": 10}
    assert found[2]["table"] == ORDERS


async def test_each_change_comes_once_however_often_it_is_followed(hw: headwater.Headwater, mongo: MongoServer) -> None:
    await follow(hw, mongo)
    for number in range(30):
        mongo.insert(ORDERS, {"_id": number, "total": number})
        if number % 10 == 0:
            await follow(hw, mongo)
    await follow(hw, mongo)
    assert short(await changes(hw)) == [("insert", number, number) for number in range(30)]


async def test_a_server_that_goes_away_is_waited_for(hw: headwater.Headwater, mongo: MongoServer) -> None:
    source = capture.MongoCollections(mongo.address, [ORDERS])
    following = asyncio.create_task(capture.follow(hw, source, "changes"))
    try:
        mongo.insert(ORDERS, {"_id": 1, "total": 1})
        await expect_soon_async(lambda: has_changes(hw, 1))
        await mongo.stop()
        mongo.insert(ORDERS, {"_id": 2, "total": 2})
        await mongo.start(mongo.port)
        await expect_soon_async(lambda: has_changes(hw, 2))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert [one["key"]["_id"] for one in await changes(hw)] == [1, 2]


async def has_changes(hw: headwater.Headwater, count: int) -> bool:
    return sum(queue.records for queue in await hw.queues() if queue.queue == "changes") >= count


async def test_a_history_that_is_lost_is_told_and_begun_anew_when_asked_for(
    hw: headwater.Headwater, mongo: MongoServer
) -> None:
    mongo.insert(ORDERS, {"_id": 1, "total": 1})
    await follow(hw, mongo)
    mongo.insert(ORDERS, {"_id": 2, "total": 2})
    mongo.insert(ORDERS, {"_id": 3, "total": 3})
    mongo.dropped = 3
    with pytest.raises(ResyncRequired, match="--resync"):
        await follow(hw, mongo)
    assert short(await changes(hw)) == [("read", 1, 1)]
    await follow(hw, mongo, resync=True)
    mongo.insert(ORDERS, {"_id": 4, "total": 4})
    await follow(hw, mongo)
    found = await changes(hw)
    assert [one["op"] for one in found] == ["resync-required", "read", "read", "read", "insert"]
    assert "any more" in found[0]["reason"]


async def test_a_collection_that_is_dropped_has_no_rows_and_one_that_is_renamed_ends_it(
    hw: headwater.Headwater, mongo: MongoServer
) -> None:
    mongo.insert(ORDERS, {"_id": 1, "total": 1})
    await follow(hw, mongo)
    mongo.drop(ORDERS)
    await follow(hw, mongo)
    assert short(await changes(hw)) == [("read", 1, 1), ("truncate", None, None)]
    mongo.rename(ORDERS)
    with pytest.raises(ResyncRequired, match="rename"):
        await follow(hw, mongo)


async def test_without_a_first_copy_only_what_changes_comes(hw: headwater.Headwater, mongo: MongoServer) -> None:
    mongo.insert(ORDERS, {"_id": 1, "total": 1})
    source = capture.MongoCollections(mongo.address, [ORDERS], snapshot=False)
    await capture.follow(hw, source, "changes", once=True)
    mongo.insert(ORDERS, {"_id": 2, "total": 2})
    await follow(hw, mongo)
    assert short(await changes(hw)) == [("insert", 2, 2)]


async def test_a_server_without_a_replica_set_is_refused(hw: headwater.Headwater, mongo: MongoServer) -> None:
    mongo.is_replica_set = False
    with pytest.raises(SourceUnfit, match="replica set"):
        await follow(hw, mongo)


@pytest.mark.parametrize("names", [[], "shop.orders", ["orders"], ["a.x", "b.y"]])
def test_names_that_cannot_be_followed_together_are_refused(names: Any) -> None:
    with pytest.raises(InvalidOption):
        capture.MongoCollections("mongodb://127.0.0.1", names)
