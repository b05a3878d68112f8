"""`headwater pipeline`: what people type, what they see, and the exit codes that scripts go by."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.cli import pipeline
from headwater.cli.pipeline import FLOWS
from headwater.cli.program import run
from headwater.cli.settings import Settings
from headwater.errors import ArchiveFull, FlowError, StoreBusy
from headwater.pipeline import session
from headwater.pipeline.failures import translate
from tests.pipeline.flows.logs import fill

FRAMES = """An error occurred while calling o88.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)
Caused by: {cause}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


class Terminal:
    """Somebody who types `headwater pipeline …` in a folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def type(self, *arguments: str) -> tuple[int, str, str]:
        code = run(["pipeline", *arguments])
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(capsys)


def test_the_flows_are_listed(terminal: Terminal) -> None:
    code, out, _ = terminal.type("list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(FLOWS)
    assert [row["flow"] for row in json.loads(terminal.type("list", "--json")[1])] == list(FLOWS)


def test_files_go_in_through_an_archive_and_out_again(spark: SparkSession, terminal: Terminal, tmp_path: Path) -> None:
    Path("a.ndjson").write_text('{"id": 1}\n{"id": 2}\nbroken\n')
    code, out, err = terminal.type("run", "load", "a.ndjson", "--queue", "orders")
    assert (code, err) == (6, "")
    assert dict(line.rsplit(maxsplit=1) for line in out.splitlines())["quarantined"] == "1"
    assert terminal.type("run", "archive", "--to", "archive", "--json")[0] == 0
    code, out, err = terminal.type("run", "restore", "--from", "archive", "--as", "copy", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["restored"] == 2
    code, out, err = terminal.type("run", "export", "--queue", "copy", "--to", "out", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rows_out"] == 2
    assert [json.loads(line) for line in next(Path("out").glob("lsn-*")).read_text().splitlines()] == [
        {"id": 1},
        {"id": 2},
    ]
    code, out, err = terminal.type("run", "rollup", "--chart", "chart.svg", "--json")
    assert (code, err) == (0, "")
    assert (json.loads(out)["messages"], Path("chart.svg").exists()) == (4, True)
    chosen = ["--queue", "copy", "--since", "2020-01-01", "--until", "2999-12-31", "--by-queue"]
    code, out, err = terminal.type("run", "rollup", "--chart", "chart.svg", "--resolution", "day", *chosen, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["shown_messages"] == 2
    assert "copy, by day" in Path("chart.svg").read_text()
    assert json.loads(terminal.type("run", "rollup", "--until", "2020-01-01", "--json")[1])["shown_messages"] == 0
    assert json.loads(terminal.type("run", "rollup", "--since", "2999-01-01", "--json")[1])["shown_messages"] == 0


def test_a_dry_run_of_a_load_takes_every_option_of_csv_files_and_leaves_no_trace(
    spark: SparkSession, terminal: Terminal, tmp_path: Path
) -> None:
    lines = "1;'ë;y';NA;31.12.2013;31.12.2013 23:59\n2;z;5;none;\n3;z;-;;\n"
    Path("a.csv").write_bytes(lines.encode("cp1252"))
    command = ["run", "load", "a.csv", "--queue", "orders", "--dry-run", "--sample", "1", "--no-header"]
    command += ["--delimiter", ";", "--quote", "'", "--null", "NA", "--null", "-", "--encoding", "cp1252"]
    command += ["--date-format", "dd.MM.yyyy", "--time-format", "dd.MM.yyyy HH:mm"]
    command += ["--schema", "id BIGINT, name STRING, amount DOUBLE, day DATE, at TIMESTAMP"]
    code, out, err = terminal.type(*command, "--json")
    assert (code, err) == (6, "")
    row = {"id": 1, "name": "ë;y", "amount": None, "day": "2013-12-31", "at": "2013-12-31T23:59:00.000000Z"}
    found = json.loads(out)
    assert (found["rows_in"], found["would_be_pushed"], found["would_be_set_aside"]) == (3, 2, 1)
    assert found["first_rows"] == [{"partition": "Default", "payload": row}]
    assert found["first_set_aside"][0]["reason"] == "day: none is no date"
    code, out, err = terminal.type(*command)
    assert (code, err) == (6, "")
    assert json.dumps(row, ensure_ascii=False)[:40] in out
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_flow_of_ones_own_runs_by_its_name(spark: SparkSession, terminal: Terminal, tmp_path: Path) -> None:
    """A command runs its flow in a thread of its own, where Spark knows no session unless it is told."""
    fill(tmp_path / "headwater.db", 3)
    Path("my_flows.py").write_text("def copy(messages):\n    return messages.select('value')\n")
    command = ["run", "my_flows:copy", "--queue", "orders", "--to", "copies", "--json"]
    code, out, err = terminal.type(*command)
    assert (code, err) == (0, "")
    assert (json.loads(out)["messages_in"], json.loads(out)["messages_out"]) == (3, 3)
    assert json.loads(terminal.type(*command)[1])["messages_out"] == 0
    with headwater.sync.open("headwater.db") as hw:
        assert len(hw.queue("copies").pop(batch=10)) == 3


def test_a_store_that_is_not_there_is_told_before_spark_starts(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "start_session", None)
    for command in (["archive", "--to", "a"], ["rollup"], ["export", "--queue", "q", "--to", "o"], ["module:flow"]):
        code, _, err = terminal.type("run", *command)
        assert (code, err[:21]) == (3, "error[store_missing]:")


def test_little_data_gets_a_brief_session_and_much_data_does_not(
    spark: SparkSession, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def start(master: str, *, log: Path, brief: bool) -> SparkSession:
        asked.append(brief)
        return spark

    monkeypatch.setattr(session, "start_session", start)
    fill(tmp_path / "headwater.db", 3)
    Path("more.ndjson").write_text("1\n")
    for bytes_max in (10_000_000, 10):
        monkeypatch.setattr(pipeline, "LITTLE_BYTES", bytes_max)
        assert terminal.type("run", "rollup")[0] == 0
    assert asked == [True, False]
    served = Settings(store="headwater.db", database="main", json=False, server="http://127.0.0.1:1")
    assert pipeline.is_little(served, ["more.ndjson"], creates=True) is True
    assert pipeline.is_little(served, ["headwater.db"], creates=True) is False
    assert pipeline.is_little(served, [], creates=False) is False
    database = Settings(store="postgresql://127.0.0.1:1/shop", database="main", json=False)
    assert pipeline.is_little(database, [], creates=False) is False
    assert pipeline.size_of(tmp_path) > pipeline.size_of(tmp_path / "headwater.db") > 0


def test_errors_are_one_line_with_a_code(spark: SparkSession, terminal: Terminal, tmp_path: Path) -> None:
    fill(tmp_path / "headwater.db", 3)
    for arguments, code, told in [
        (["archive", "--to", "a", "--store", "none.db"], 3, "error[store_missing]: there is no store at"),
        (
            ["archive", "--to", "a", "--queue", "order"],
            1,
            "error[not_found]: there is no queue 'order'; there are orders",
        ),
        (["restore", "--from", "a"], 1, "error[source_unfit]: a is no archive"),
        (["restore", "--from", "a", "--since", "monday"], 2, "error[usage]: --since must be a day"),
        (["load", "gone.csv", "--queue", "orders"], 1, "error[source_unfit]: gone.csv is no file"),
        (["export", "--queue", "orders", "--to", "o", "--schema", "id WHAT"], 1, "error[source_unfit]: the schema"),
        (["rollup", "--chart", "chart.pdf"], 1, "error[source_unfit]: a chart is a file that ends with .svg or .html"),
        (["nowhere:flow"], 1, "error[source_unfit]: there is no module 'nowhere' here"),
    ]:
        ended, out, err = terminal.type("run", *arguments)
        assert (ended, out) == (code, ""), arguments
        assert err.startswith(told), err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["archive", "--too", "a"], "No such option: --too"),
        (["archive"], "Missing option '--to'"),
        (["achive", "--to", "a"], "Did you mean 'archive'?"),
        (["load", "a.csv"], "Missing option '--queue'"),
        (["load", "a.csv", "--queue", "q", "--format", "xml"], "'parquet', 'csv', 'ndjson'"),
        (["my_module:my_flow", "--tto", "q"], "No such option: --tto"),
    ],
)
def test_a_wrong_command_line_is_told_before_spark_starts(terminal: Terminal, arguments: list[str], told: str) -> None:
    code, _, err = terminal.type("run", *arguments)
    assert code == 2
    assert told in err


def test_the_line_that_matters_is_found_among_the_frames() -> None:
    busy = translate(FRAMES.format(cause="python\nheadwater.errors.StoreBusy: another program held the write lock"))
    assert (type(busy), str(busy)) == (StoreBusy, "another program held the write lock")
    unsaid = "+- Project [raise_error(concat(headwater.errors.InvalidPayload: , concat(x)))]"
    plan = f"headwater.errors.QueueMissing: no queue\n{unsaid}"
    assert str(translate(FRAMES.format(cause=plan))) == "no queue"
    full = translate(FRAMES.format(cause="java.io.IOException: No space left on device"), Path("spark.log"))
    assert type(full) is ArchiveFull
    other = translate(FRAMES.format(cause="java.io.FileNotFoundException: a.csv (gone)"), Path("spark.log"))
    assert type(other) is FlowError
    assert str(other) == "Spark failed: FileNotFoundException: a.csv (gone); Spark's log is spark.log"
    assert "it does not say why" in str(translate(""))
    raised = 'Traceback (most recent call last):\n  File "own.py", line 3, in name\n    boom()\nRuntimeError: boom\n'
    for text in (
        f"An exception was thrown from the Python worker:\n{raised}",
        FRAMES.format(cause=f"python\n{raised}"),
    ):
        assert str(translate(text)) == "Spark failed: RuntimeError: boom"


def test_ctrl_c_while_spark_starts_is_one_line_and_leaves_the_start_whole(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of Java that is cut in two is pages of frames; so the start is finished first."""
    fill(tmp_path / "headwater.db", 3)
    finished = threading.Event()

    def start(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        finished.set()

    monkeypatch.setattr(session, "start_session", start)
    before = signal.getsignal(signal.SIGINT)
    code, out, err = terminal.type("run", "archive", "--to", "archive")
    assert (code, out) == (130, "")
    assert err.splitlines() == ["ended by Ctrl-C; what was finished stays, and running it again goes on from there"]
    assert finished.is_set()
    assert signal.getsignal(signal.SIGINT) == before
    assert not (tmp_path / "archive").exists()


def test_ctrl_c_before_spark_starts_is_one_line(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*arguments: object) -> None:
        raise KeyboardInterrupt

    fill(tmp_path / "headwater.db", 3)
    monkeypatch.setattr(pipeline, "is_little", look)
    code, out, err = terminal.type("run", "archive", "--to", "archive")
    assert (code, out, len(err.splitlines())) == (130, "", 1)
