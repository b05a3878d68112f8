"""Spark reads a store in a bucket itself, on its executors: no server in between, and nobody is kept from writing."""

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

import headwater
from headwater.pipeline import read

PARTITIONS = 3


async def write(address: str, numbers: range) -> None:
    async with headwater.open(address) as hw:
        for number in numbers:
            await hw.queue("orders").push({"id": number}, partition=f"p{number % PARTITIONS}")


def test_executors_read_what_has_landed_in_a_bucket_and_later_what_came_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    address = f"file://{tmp_path}/log.sqlite?lease_seconds=0"
    asyncio.run(write(address, range(30)))
    rows = read(spark, store=address, queue="orders", schema="id BIGINT").select("partition", "value.id").collect()
    assert sorted((row.id, row.partition) for row in rows) == [(n, f"p{n % PARTITIONS}") for n in range(30)]
    asyncio.run(write(address, range(30, 40)))
    more = read(spark, store=address, queue="orders", schema="id BIGINT")
    assert more.count() == 40
    assert more.rdd.getNumPartitions() >= 1


def test_executors_read_while_a_broker_holds_the_store(spark: SparkSession, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/log.sqlite"

    async def read_meanwhile() -> int:
        async with headwater.open(address) as hw:
            for number in range(5):
                await hw.queue("orders").push({"id": number})
            found = await asyncio.to_thread(lambda: read(spark, store=address, queue="orders").count())
            await hw.queue("orders").push({"id": 5})
            return found

    assert asyncio.run(read_meanwhile()) == 5
