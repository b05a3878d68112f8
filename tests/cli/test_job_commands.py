"""`queuectl` tells the truth, and can do it in bulk."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater.cli.job_logs import kept_of, news_of
from headwater.log.job_operations import Changed, ChooseJobs, Claim, Heartbeat, JobReport, Note, Settle
from headwater.model.job import JobNumber, JobOutcome, JobState
from headwater.services.jobs import Jobs
from headwater.worker.capture import Capture
from tests.cli.queuectl import Queuectl

ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x9b2J"


@pytest.fixture
def queuectl(tmp_path: Path) -> Queuectl:
    return Queuectl(tmp_path)


def worked(queuectl: Queuectl, *errors: str, output: str = "", settle: bool = True) -> None:
    """A worker claims as many jobs as there are errors; an empty one completes, another buries its job."""

    async def work() -> None:
        async with headwater.open(str(queuectl.folder / "headwater.db"), housekeeping=False) as hw:
            jobs = (await hw.jobs_service.run(Claim(worker="w", limit=len(errors)))).jobs
            for job, error in zip(jobs, errors, strict=True):
                if not settle:
                    note = Note(number=job.number, token=job.token, output=output)
                    await hw.jobs_service.run(Heartbeat(worker="w", notes=[note]))
                    continue
                outcome = JobOutcome.BURIED if error else JobOutcome.COMPLETED
                report = JobReport(number=job.number, token=job.token, outcome=outcome, error=error, output=output)
                await hw.jobs_service.run(Settle(worker="w", reports=[report]))

    asyncio.run(work())


def add(queuectl: Queuectl, *jobs: dict[str, Any]) -> None:
    queuectl.expect(0, "enqueue", *(json.dumps({"command": "true", **job}) for job in jobs))


# ── a new folder ──


@pytest.mark.parametrize(
    "command", ["status", "list", "stats", "dlq list", "schedule list", "worker list", "limit list"]
)
def test_looking_where_nothing_is_yet_shows_nothing_and_makes_nothing(queuectl: Queuectl, command: str) -> None:
    for format in ((), ("--json",)):
        ended = queuectl.expect(0, *command.split(), *format)
        assert "no store at headwater.db yet" in ended.err
    assert list(queuectl.folder.iterdir()) == []
    assert queuectl.run("show", "job1").code == 3


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("list --state lost", 2),
        ("cancel --state lost --yes", 2),
        ("retry --state lost --yes", 2),
        ("cleanup --state lost", 2),
        ("cleanup --older-than soon", 2),
        ("wait a --timeout soon", 2),
        ("limit set shell --rate 1 --per soon", 2),
        ("schedule add x {} --every soon", 2),
        ("schedule add x {}", 2),
        ("enqueue --command true --delay soon", 2),
        ("config set colour red", 2),
        ("config set max-retries many", 2),
        ("config get colour", 2),
        ("completion tcsh", 2),
        ("cancel", 2),
        ("dlq retry", 2),
        ("show nobody", 1),
        ("cancel nobody", 1),
        ("schedule run nobody", 1),
        ("retry --all --yes", 4),
        ("dlq purge --all --yes", 4),
        ("limit clear shell", 4),
        ("wait later --timeout 0.01s", 4),
        ("wait cancelled", 1),
        ("list --state dead", 0),
    ],
)
def test_exit_codes_are_the_documented_ones(queuectl: Queuectl, typed: str, code: int) -> None:
    """2: what was typed makes no sense, and nothing was tried. 1: it was tried and failed. 4: there was nothing."""
    add(queuectl, {"id": "later", "delay": 3_600}, {"id": "cancelled"})
    queuectl.expect(0, "cancel", "cancelled")
    queuectl.expect(code, *typed.split())


# ── cancel ──


def test_cancel_says_asked_to_stop_until_the_worker_has_ended_the_job(queuectl: Queuectl) -> None:
    add(queuectl, {"id": "runs", "priority": 1}, {"id": "waits"})
    worked(queuectl, "", settle=False)
    ended = queuectl.expect(0, "cancel", "runs", "waits")
    assert ended.lines() == ["cancelled: waits", "asked to stop: runs"]
    assert "asked to stop" in queuectl.expect(0, "show", "runs").out
    assert "processing, asked to stop" in queuectl.expect(0, "list", "--queue", "default").out
    document = queuectl.expect(0, "show", "runs", "--json").document()
    assert (document["state"], document["cancelling"]) == ("processing", True)
    again = queuectl.expect(0, "cancel", "runs", "--json").document()
    assert again == {"ids": ["runs"], "count": 1, "asked_to_stop": ["runs"]}


@pytest.mark.parametrize("typed", [["runs"], ["--queue", "default", "--yes"]])
def test_cancel_says_what_the_store_did_whatever_became_of_the_jobs_since(
    queuectl: Queuectl, monkeypatch: pytest.MonkeyPatch, typed: list[str]
) -> None:
    """A job that ran completes between the cancel and the moment at which it is told of."""
    add(queuectl, {"id": "runs"})
    worked(queuectl, "", settle=False)
    cancel = Jobs.change

    async def change(jobs: Jobs, operation: ChooseJobs) -> Changed:
        changed = await cancel(jobs, operation)
        report = JobReport(number=JobNumber(1), token=1, outcome=JobOutcome.COMPLETED)
        settled = await jobs.service.run(Settle(worker="w", reports=[report]))
        assert settled.states == [JobState.COMPLETED]
        return changed

    monkeypatch.setattr(Jobs, "change", change)
    assert queuectl.expect(0, "cancel", *typed).lines() == ["asked to stop: runs"]


# ── retry ──


@pytest.mark.parametrize("typed", ["retry", "dlq retry"])
def test_retry_passes_over_jobs_whose_unique_key_another_has_and_says_so(queuectl: Queuectl, typed: str) -> None:
    for id in ("a", "b"):
        add(queuectl, {"id": id, "unique_key": "import"})
        worked(queuectl, "no such file")
    add(queuectl, {"id": "c", "unique_key": "import", "delay": 3_600})
    words = typed.split()
    refused = queuectl.expect(1, *words, "a")
    assert refused.err == "error[job_state]: job a cannot be retried: job c has its unique key\n"
    ended = queuectl.expect(4, *words, "--all", "--yes")
    assert ended.out.startswith("passed over, another job has the unique key: ")
    queuectl.expect(0, "cancel", "c")
    told = queuectl.expect(0, *words, "--all", "--yes", "--json").document()
    assert told == {"ids": ["b"], "count": 1, "passed_over": ["a"]}
    assert [job["id"] for job in queuectl.expect(0, "list", "--state", "pending", "--json").documents()] == ["b"]


def orphan(queuectl: Queuectl) -> None:
    """A dead job that somebody dropped, and one that waited for it, which was cancelled with it."""
    add(queuectl, {"id": "parent"}, {"id": "child", "depends_on": ["parent"]})
    worked(queuectl, "no such file")
    queuectl.expect(0, "dlq", "purge", "parent", "--yes")
    assert states(queuectl) == {"child": "cancelled"}


def test_retry_refuses_a_job_of_which_something_that_it_depends_on_is_gone_and_says_so(queuectl: Queuectl) -> None:
    orphan(queuectl)
    refused = queuectl.expect(1, "retry", "child")
    told = "job child cannot be retried: a job that it depends on was dropped; add it anew"
    assert refused.err == f"error[job_state]: {told}\n"
    ended = queuectl.expect(4, "retry", "--state", "cancelled", "--yes")
    assert ended.out == "passed over, a job that they depend on was dropped: child\n"
    document = queuectl.expect(4, "retry", "--state", "cancelled", "--yes", "--json").document()
    assert document == {"ids": [], "count": 0, "orphaned": ["child"]}
    assert states(queuectl) == {"child": "cancelled"}


# ── dropping ──


def states(queuectl: Queuectl) -> dict[str, str]:
    return {job["id"]: job["state"] for job in queuectl.expect(0, "list", "--json").documents()}


def test_jobs_that_others_depend_on_are_kept_and_it_is_said(queuectl: Queuectl) -> None:
    later = {"depends_on": ["dead"], "depends_when": "finished", "delay": 3_600}
    add(queuectl, {"id": "dead"}, {"id": "other"}, {"id": "child", **later})
    worked(queuectl, "no such file", "no such file")
    refused = queuectl.expect(1, "dlq", "purge", "dead", "--yes")
    told = "job dead cannot be dropped: job child depends on it and may still run"
    assert refused.err == f"error[job_state]: {told}\n"
    cleaned = queuectl.expect(0, "cleanup", "--older-than", "0s", "--state", "dead")
    assert (cleaned.out, cleaned.err) == ("dropped 1 job\n", "kept 1 job: others depend on them that may still run\n")
    told_again = queuectl.expect(0, "cleanup", "--older-than", "0s", "--state", "dead", "--json").document()
    assert told_again == {"dropped": 0, "kept": 1}
    purged = queuectl.expect(4, "dlq", "purge", "--all", "--yes")
    assert purged.out == "kept, others depend on them that may still run: dead\n"
    assert states(queuectl) == {"dead": "dead", "child": "scheduled"}
    queuectl.expect(0, "cancel", "child")
    queuectl.expect(0, "dlq", "purge", "dead", "--yes")
    assert states(queuectl) == {"child": "cancelled"}


# ── in bulk ──


def three(queuectl: Queuectl) -> None:
    """Three dead jobs: two that could not connect, one of another type and queue."""
    add(
        queuectl,
        {"id": "a", "type": "command:mail"},
        {"id": "b", "type": "command:mail", "queue": "post"},
        {"id": "c"},
        {"id": "d", "priority": -1},
    )
    worked(queuectl, "connection refused", "connection refused by peer", "no such file")


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        (("--type", "command:mail"), ["a", "b"]),
        (("--queue", "post"), ["b"]),
        (("--error", "refused"), ["a", "b"]),
        (("--type", "command:mail", "--error", "by peer"), ["b"]),
        (("--type", "shell"), ["c"]),
        (("--all",), ["a", "b", "c"]),
    ],
)
@pytest.mark.parametrize("command", ["retry", "dlq retry", "dlq purge"])
def test_dead_jobs_are_chosen_by_type_queue_and_error(
    queuectl: Queuectl, command: str, typed: tuple[str, ...], chosen: list[str]
) -> None:
    three(queuectl)
    done = queuectl.expect(0, *command.split(), *typed, "--yes", "--json").document()
    assert sorted(done["ids"]) == chosen
    left = [job["id"] for job in queuectl.expect(0, "list", "--state", "dead", "--json").documents()]
    assert sorted(left) == sorted({"a", "b", "c"} - set(chosen))


def test_what_a_bulk_command_means_is_shown_before_it_is_done(queuectl: Queuectl) -> None:
    three(queuectl)
    asked = queuectl.run("dlq", "retry", "--error", "refused")
    assert asked.code == 2
    assert "say --yes" in asked.err
    assert [line.split()[0] for line in asked.lines()] == ["ID", "a", "b"] or len(asked.lines()) == 3
    assert len(queuectl.expect(0, "dlq", "list", "--json").documents()) == 3, "nothing was done"
    assert queuectl.run("retry", "a", "--type", "command:mail").code == 2
    assert queuectl.run("retry").code == 2
    assert queuectl.expect(4, "retry", "--error", "no such thing", "--yes").out == ""


def test_jobs_are_cancelled_by_type_queue_and_state(queuectl: Queuectl) -> None:
    add(queuectl, {"id": "a", "type": "command:mail"}, {"id": "b", "delay": 60}, {"id": "c", "queue": "post"})
    assert queuectl.expect(0, "cancel", "--type", "command:mail", "--yes").out == "cancelled: a\n"
    assert queuectl.expect(0, "cancel", "--state", "scheduled", "--yes").out == "cancelled: b\n"
    assert queuectl.expect(0, "cancel", "--queue", "post", "--yes").out == "cancelled: c\n"
    assert queuectl.expect(4, "cancel", "--all", "--yes").out == ""


def test_lists_are_narrowed_by_a_part_of_the_error(queuectl: Queuectl) -> None:
    three(queuectl)
    found = queuectl.expect(0, "list", "--error", "refused", "--json").documents()
    assert sorted(job["id"] for job in found) == ["a", "b"]
    assert [job["id"] for job in queuectl.expect(0, "dlq", "list", "--error", "file", "--json").documents()] == ["c"]


# ── limits ──


def test_limits_are_listed_changed_one_by_one_and_cleared(queuectl: Queuectl) -> None:
    queuectl.expect(0, "limit", "shell", "--rate", "10", "--per", "1m")
    queuectl.expect(0, "limit", "set", "shell", "--concurrency", "4")
    queuectl.expect(0, "limit", "set", "tasks:call", "--queue", "calls", "--each-key", "--rate", "5")
    calls, shell = queuectl.expect(0, "limit", "list", "--json").documents()
    assert (shell["rate"], shell["per"], shell["concurrency"], shell["each_key"]) == (10, 60, 4, False)
    assert (calls["type"], calls["queue"], calls["rate"], calls["each_key"]) == ("tasks:call", "calls", 5, True)
    table = queuectl.expect(0, "limit", "list").lines()
    assert table[0].split() == ["TYPE", "QUEUE", "EACH", "KEY", "RATE", "PER", "BURST", "CONCURRENCY", "RUNNING"]
    assert "say --rate or --concurrency" in queuectl.expect(2, "limit", "set", "shell").err
    assert queuectl.expect(0, "limit", "clear", "shell").out == "shell is limited no more in default\n"
    assert queuectl.expect(4, "limit", "clear", "shell").out == ""
    queuectl.expect(0, "limit", "clear", "tasks:call", "--queue", "calls")
    assert queuectl.expect(0, "limit", "list", "--json").out == ""


# ── looking ──


def test_a_list_tells_when_a_job_started_where_it_runs_and_what_it_waits_for(queuectl: Queuectl) -> None:
    add(queuectl, {"id": "runs", "priority": 1}, {"id": "next"}, {"id": "later", "delay": 7_200})
    add(queuectl, {"id": "after", "depends_on": ["next", "later"]})
    worked(queuectl, "", settle=False)
    head, *rows = queuectl.expect(0, "list").lines()
    assert [name for name in ("STARTED", "WORKER", "WAITING") if name not in head.split()] == []
    by_id = {row.split()[0]: row for row in rows}
    assert " w " in by_id["runs"]
    assert "for 2 jobs" in by_id["after"]
    assert "2 h more" in by_id["later"]


def test_show_tells_the_arguments_of_a_function_and_the_type_and_folder_of_a_command(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", "--type", "tasks:send", "--id", "f", "--args", "[1]", "--kwargs", '{"to": "ada"}')
    assert '[[1],{"to":"ada"}]' in queuectl.expect(0, "show", "f").out
    queuectl.expect(0, "enqueue", "--type", "command:backup", "--id", "c", "--argv", '["ls", "-l"]', "--cwd", "/tmp")
    out = queuectl.expect(0, "show", "c").out
    assert [word for word in ("command:backup", "/tmp", "ls -l") if word not in out] == []


def test_nothing_that_a_job_says_steers_the_terminal(queuectl: Queuectl) -> None:
    add(queuectl, {"id": "a", "command": f"echo {ESCAPES}"})
    worked(queuectl, f"boom {ESCAPES}", output=f"line 1\n\tline 2 {ESCAPES}\n")
    for words in ("show a", "list", "dlq list", "dlq show a", "logs a"):
        out = queuectl.expect(0, *words.split()).out
        assert not {"\x1b", "\x07", "\x9b"} & set(out), words
    assert queuectl.expect(0, "logs", "a").out.startswith("line 1\n\tline 2 \\u001b]0;owned\\u0007")
    assert queuectl.expect(0, "logs", "a", "--raw").out == f"line 1\n\tline 2 {ESCAPES}\n"


def test_following_goes_on_past_what_is_kept() -> None:
    """As the worker captures it: 64 KiB are kept of any output, and whoever follows sees each line once."""
    capture, shown, seen = Capture(65_536), 0, ""
    for start in range(0, 20_000, 100):
        capture.add("".join(f"line {number}\n" for number in range(start, start + 100)).encode())
        text, shown = news_of(shown, kept_of(capture.text()))
        seen += text
    assert seen == "".join(f"line {number}\n" for number in range(20_000))


def test_who_comes_late_is_told_what_is_left_out() -> None:
    capture = Capture(2_000)
    text, shown = news_of(0, kept_of(""))
    for number in range(1_000):
        capture.add(f"line {number}\n".encode())
    text, shown = news_of(shown, kept_of(capture.text()))
    assert text == capture.text()
    assert "bytes left out" in text
    for number in range(1_000, 2_000):
        capture.add(f"line {number}\n".encode())
    text, shown = news_of(shown, kept_of(capture.text()))
    assert text.startswith("\n… ")
    assert text.endswith("line 1999\n")
    assert news_of(shown, kept_of(capture.text()))[0] == ""


# ── schedules ──


def test_a_schedule_is_run_now_beside_its_times(queuectl: Queuectl) -> None:
    job = '{"command": "backup", "env": {"PASSWORD": "c4n4ry"}, "priority": 4}'
    queuectl.expect(0, "schedule", "add", "nightly", job, "--cron", "0 3 * * *")
    before = queuectl.expect(0, "schedule", "list", "--json").document()["next_at"]
    ran = queuectl.expect(0, "schedule", "run", "nightly", "--json").document()
    (found,) = queuectl.expect(0, "list", "--json").documents()
    assert (found["id"], found["command"], found["priority"]) == (ran["id"], "backup", 4)
    after = queuectl.expect(0, "schedule", "list", "--json").document()
    assert (after["next_at"], after["last_id"]) == (before, ran["id"])
    assert queuectl.expect(1, "schedule", "run", "nobody", "--json").error()["code"] == "not_found"


# ── draining ──


def test_a_drain_says_what_it_leaves(queuectl: Queuectl) -> None:
    add(queuectl, {"id": "now"}, {"id": "later", "delay": 3_600}, {"id": "after", "depends_on": ["later"]})
    add(queuectl, {"id": "rests", "queue": "paused"})
    queuectl.expect(0, "pause", "paused")
    ended = queuectl.run_process("worker", "start", "--count", "1", "--drain")
    assert ended.code == 0
    for words in ("1 job for later", "1 job waiting for others", "1 job pending in paused, which is paused"):
        assert words in ended.err, ended.err
    assert queuectl.expect(0, "show", "now", "--json").document()["state"] == "completed"
    told = queuectl.run_process("worker", "start", "--count", "1", "--drain", "--json", "--queue", "default")
    assert json.loads(told.out.splitlines()[-1])["left"] == 2


def test_workers_leave_alone_what_their_program_had_started_before_and_whose_signals_it_heard(
    queuectl: Queuectl,
) -> None:
    """A shell that becomes the supervisor (`helper & exec queuectl …`) keeps its helper."""
    bystander = subprocess.Popen(["sleep", "60"], process_group=0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        add(queuectl, {"id": "now"})
        queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
        assert queuectl.expect(0, "show", "now", "--json").document()["state"] == "completed"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_limit_in_another_queue_than_the_function_goes_to_says_so(queuectl: Queuectl) -> None:
    program = "from headwater.jobs import JobApp\napp = JobApp()\n@app.job(queue='mail')\ndef send() -> None: ...\n"
    (queuectl.folder / "tasks.py").write_text(program)
    queuectl.expect(0, "worker", "start", "--count", "1", "--app", "tasks:app", "--drain")
    assert "--queue mail" in queuectl.expect(0, "limit", "set", "tasks:send", "--concurrency", "1").err
    assert queuectl.expect(0, "limit", "set", "tasks:send", "--queue", "mail", "--concurrency", "1").err == ""


# ── the view ──


def test_the_view_of_jobs_shows_the_command_of_a_list_of_words(queuectl: Queuectl) -> None:
    """S1-3: the columns of the document, the command of every job among them."""
    add(queuectl, {"id": "line", "command": "echo hi"})
    argv = ["convert", "a b.png", "it's", "", "--x=1"]
    queuectl.expect(0, "enqueue", json.dumps({"id": "words", "argv": argv}), '{"id": "f", "type": "tasks:send"}')
    connection = apsw.Connection(str(queuectl.folder / "headwater.db"))
    rows: dict[str, Any] = dict(connection.execute("SELECT id, command FROM jobs").fetchall())  # type: ignore[arg-type]
    columns = [column[0] for column in connection.execute("SELECT * FROM jobs").get_description()]
    connection.close()
    assert rows["line"] == "echo hi"
    assert rows["f"] == "tasks:send"
    echoed = subprocess.run(["/bin/sh", "-c", f"printf '%s\\n' {rows['words']}"], capture_output=True, text=True)
    assert echoed.stdout.splitlines() == argv, "it is what a shell would take"
    expected = (
        "id command state attempts max_retries created_at updated_at locked_by locked_at run_at timeout output error"
    )
    assert set(expected.split()) <= set(columns)


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        (("cleanup", "--state", "dead", "--older-than", "0s"), {"dropped": 1}),
        (("dlq", "purge", "--all", "--yes"), {"ids": ["parent"], "count": 1}),
        (("dlq", "purge", "parent", "--yes"), {"ids": ["parent"], "count": 1}),
    ],
)
def test_what_waited_for_a_dead_job_that_is_dropped_is_told(
    queuectl: Queuectl, words: tuple[str, ...], counted: dict[str, object]
) -> None:
    add(queuectl, {"id": "parent"}, {"id": "child", "depends_on": ["parent"]})
    add(queuectl, {"id": "grandchild", "depends_on": ["child"]})
    worked(queuectl, "no such file")
    dropped = queuectl.expect(0, *words, "--json")
    assert dropped.document() == {**counted, "cancelled": 2}
    assert "cancelled 2 jobs with " in dropped.err
    assert states(queuectl) == {"child": "cancelled", "grandchild": "cancelled"}
