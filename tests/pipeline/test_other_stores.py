"""Spark over a store on PostgreSQL and over one in a bucket: executors read it themselves, by the same contract.

Tables, streams, the sink and what is known again are those of a file; here the same is asked of the other stores.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.pipeline import read
from tests.pipeline.store import QUERY_ERRORS, collect
from tests.pipeline.test_through_server import shown_by
from tests.postgres_server import server

PARTITIONS = 3
CANARY = "canary-of-a-password"


class Place:
    """A store at an address, opened for each thing that is done to it, so that Spark may hold it in between."""

    def __init__(self, address: str, remove: Callable[[], None]) -> None:
        self.address = address
        self.remove = remove

    def do(self, what: Callable[[headwater.Headwater], Any]) -> Any:
        async def opened() -> Any:
            async with headwater.open(self.address, housekeeping=False) as hw:
                return await what(hw)

        return asyncio.run(opened())

    def push(self, numbers: range) -> None:
        async def push(hw: headwater.Headwater) -> None:
            for number in numbers:
                await hw.queue("orders").push({"id": number}, partition=f"p{number % PARTITIONS}")

        self.do(push)

    def ids(self, queue: str) -> list[int]:
        """What is in a queue, by partition and in its order there."""

        async def pop(hw: headwater.Headwater) -> list[int]:
            found = []
            while messages := await hw.queue(queue).pop(batch=1_000, partitions=100, auto_ack=True):
                found += [(message.partition, message.offset, message.payload["id"]) for message in messages]
            return [number for _, _, number in sorted(found)]

        ids: list[int] = self.do(pop)
        return ids

    def delete(self, queue: str) -> None:
        self.do(lambda hw: hw.queue(queue).delete())


def by_partition(numbers: range) -> list[int]:
    return sorted(numbers, key=lambda number: (number % PARTITIONS, number))


@pytest.fixture(scope="module", autouse=True)
def started() -> None:
    """One server for the whole process: it belongs to no test."""
    server()


@pytest.fixture(params=["postgresql", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "bucket":
        folder = tmp_path / "bucket"
        folder.mkdir()

        def empty() -> None:
            shutil.rmtree(folder)
            folder.mkdir()

        yield Place(f"file://{folder}/log.sqlite?lease_seconds=0", empty)
        return
    schema = server().new_schema()

    def remove() -> None:
        with server().connect() as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")

    # The server trusts its socket: the password is there to be looked for.
    yield Place(server().address(schema).replace("@", f":{CANARY}@"), remove)


def run(spark: SparkSession, place: Place, checkpoint: Path, **options: Any) -> None:
    """Copy what is new of the queue into another one of the same store."""
    rows = spark.readStream.format("headwater").options(store=place.address, queue="orders", **options).load()
    writer = rows.select("value", "partition").writeStream.format("headwater")
    writer = writer.options(store=place.address, queue="copies").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_table_is_a_snapshot_with_offsets_of_every_partition(spark: SparkSession, place: Place) -> None:
    place.push(range(30))
    about: dict[str, Any] = {"store": place.address, "queue": "orders", "schema": "id BIGINT"}
    table = read(spark, **about)
    place.push(range(30, 36))
    expected = sorted((f"p{n % PARTITIONS}", n // PARTITIONS, n) for n in range(30))
    assert collect(table, "partition", "offset", "value.id") == expected
    assert read(spark, **about).count() == 36
    some = read(spark, **about, startingOffsets='{"orders": {"p0": 10, "p1": -1}}', minPartitions=3)
    assert some.rdd.getNumPartitions() >= 3
    assert sorted(row.id for row in some.select("value.id").collect()) == [
        *(n for n in range(36) if n % PARTITIONS == 2 or n in (30, 33)),
    ]
    shown = [shown_by(spark, table)]
    with pytest.raises(QUERY_ERRORS) as told:
        read(spark, store=place.address, queue="nowhere").count()
    assert "there is no queue 'nowhere'" in str(told.value)
    assert CANARY not in "".join([*shown, str(told.value)])


def test_a_table_of_the_catalog_keeps_no_password(spark: SparkSession, place: Place) -> None:
    """It stood in the comment of a column, and so in every file that was written from the table."""
    place.push(range(3))
    address = place.address.replace(f":{CANARY}", "")
    if address != place.address:
        with pytest.raises(QUERY_ERRORS, match="PGPASSWORD") as told:
            spark.sql(f"CREATE TABLE log_secret USING headwater OPTIONS (store '{place.address}', queue 'orders')")
        assert CANARY not in str(told.value)
        assert not spark.catalog.tableExists("log_secret")
    spark.sql(f"CREATE TABLE log_elsewhere USING headwater OPTIONS (store '{address}', queue 'orders')")
    try:
        assert spark.sql("SELECT count(*) FROM log_elsewhere").first() == (3,)
    finally:
        spark.sql("DROP TABLE log_elsewhere")


def test_a_stream_is_pushed_once_whatever_spark_forgot(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    place.push(range(12))
    run(spark, place, checkpoint, maxOffsetsPerTrigger=5)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) == 3
    # Killed after the commit of the sink and before Spark has noted it: the micro-batch runs again.
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    place.push(range(12, 18))
    run(spark, place, checkpoint, maxOffsetsPerTrigger=5)
    assert place.ids("copies") == by_partition(range(18))


def test_another_store_or_queue_in_its_place_is_told(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    place.push(range(5))
    table = read(spark, store=place.address, queue="orders")
    run(spark, place, tmp_path / "one")
    place.delete("orders")
    place.push(range(10, 13))
    with pytest.raises(QUERY_ERRORS, match=r"orders was deleted and made again.*failOnDataLoss"):
        run(spark, place, tmp_path / "one")
    with pytest.raises(QUERY_ERRORS, match=r"orders was deleted and made again.*load the table again"):
        table.count()
    run(spark, place, tmp_path / "one", failOnDataLoss=False)
    assert sorted(place.ids("copies")) == [*range(5), 10, 11, 12]
    place.remove()
    place.push(range(20, 40))
    with pytest.raises(QUERY_ERRORS, match=r"StoreReplaced.*failOnDataLoss") as told:
        run(spark, place, tmp_path / "one")
    assert CANARY not in str(told.value)
    with pytest.raises(QUERY_ERRORS, match=r"StoreReplaced.*load the table again"):
        table.count()
