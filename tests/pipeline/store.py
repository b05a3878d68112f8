"""A store as these tests hold it: pushes, the oracle of what is in it, and queries over it in short calls."""

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headwater
import headwater.sync
from headwater import Outgoing
from headwater.log.committer import Committer
from headwater.log.operations import Operation

QUEUE = "orders"

# Programs that live for seconds: Java's second compiler and its parallel collector only take cores from the tests.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What a query that fails raises: Spark's own error, or the bridge's where Spark has no name for it.
QUERY_ERRORS = (PySparkException, Py4JJavaError)


class Store:
    """A store that is open for pushes, and its address."""

    def __init__(self, opened: headwater.sync.Headwater, address: str) -> None:
        self.opened = opened
        self.address = address
        self.pushed: list[tuple[str, str, int, Any]] = []

    def push(self, *payloads: Any, queue: str = QUEUE, partition: str = "Default", **about: Any) -> None:
        """Push payloads in one commit, and remember where they are."""
        messages = [Outgoing(payload=payload, partition=partition, **about) for payload in payloads]
        receipts = self.opened.queue(queue).push_many(messages)
        for receipt, payload in zip(receipts, payloads, strict=True):
            assert receipt.offset is not None
            self.pushed.append((queue, partition, receipt.offset, payload))

    def run(self, operation: Operation) -> Any:
        """Commit an operation that people have no call for."""
        return self.opened._bridge.run(commit(self.opened._inner.committer, operation))

    def records(self, queue: str = QUEUE) -> list[Any]:
        """What is in a queue, by partition and offset, as a consumer of the library gets it."""
        group = f"oracle-{len(self.pushed)}"
        found = []
        while messages := self.opened.queue(queue).pop(group=group, batch=1_000, partitions=100, auto_ack=True):
            found += [(message.partition, message.offset, message.payload) for message in messages]
        self.opened.queue(queue).delete_group(group)
        return sorted(found, key=lambda place: place[:2])

    def table(self, spark: SparkSession, queue: str = QUEUE, **options: Any) -> DataFrame:
        """The queue as a table."""
        return self._options(spark.read, queue, options).load()  # type: ignore[no-any-return]

    def stream(self, spark: SparkSession, queue: str = QUEUE, **options: Any) -> DataFrame:
        """The queue as a stream."""
        return self._options(spark.readStream, queue, options).load()  # type: ignore[no-any-return]

    def _options(self, reader: Any, queue: str, options: dict[str, Any]) -> Any:
        named = {"queue": queue} if queue else {}
        return reader.format("headwater").options(store=self.address, **named, **options)

    def sink(self, rows: DataFrame, checkpoint: Path, queue: str = "copies", **options: Any) -> StreamingQuery:
        """Write a stream to a queue until it has read what there is."""
        writer = rows.writeStream.format("headwater").options(store=self.address, queue=queue, **options)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query


async def commit(committer: Committer, operation: Operation) -> Any:
    return (await committer.submit(operation)).result


def collect(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted."""
    return sorted(tuple(row) for row in rows.select(*columns).collect())
