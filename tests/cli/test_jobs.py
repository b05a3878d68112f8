"""`queuectl`: the commands for jobs, as people type them."""

import json
from pathlib import Path

import pytest

from tests.cli.queuectl import Queuectl

NEVER_EMPTY = ("id", "queue", "cwd", "batch", "unique_key", "concurrency_key", "limit_key")
GOOD = '{"id": "job1", "command": "sleep 2"}'


@pytest.fixture
def queuectl(tmp_path: Path) -> Queuectl:
    return Queuectl(tmp_path)


# ── enqueue ──


def test_a_job_is_enqueued_by_its_json_and_shown(queuectl: Queuectl) -> None:
    assert queuectl.expect(0, "enqueue", '{"id":"job1","command":"sleep 2"}').out == "enqueued job1\n"
    shown = queuectl.expect(0, "show", "job1", "--json").document()
    expected = {"id": "job1", "command": "sleep 2", "state": "pending", "attempts": 0, "max_retries": 3, "error": None}
    assert expected.items() <= shown.items()
    assert "sleep 2" in queuectl.expect(0, "show", "job1").out


def test_lines_from_a_file_or_a_pipe_go_in_together_or_not_at_all(queuectl: Queuectl) -> None:
    lines = "\n".join(json.dumps({"id": f"job{number}", "command": "true"}) for number in range(50))
    (queuectl.folder / "jobs.ndjson").write_text(lines)
    assert queuectl.expect(0, "enqueue", "--file", "jobs.ndjson").out == "enqueued 50 jobs\n"
    piped = queuectl.run_process("enqueue", "--json", given=b'{"id": "a", "command": "true"}\n\n{"argv": ["true"]}\n')
    assert [document["duplicate"] for document in piped.documents()] == [False, False]
    refused = queuectl.run_process("enqueue", given=b'{"id": "b", "command": "true"}\n{"id": "a", "command": "true"}\n')
    assert refused.code == 1
    assert "there is a job a already" in refused.err
    assert queuectl.expect(0, "status", "--json").document()["totals"]["pending"] == 52


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("sleep 2", "not JSON"),
        ("[]", "no job"),
        ('{"command": 7}', "no job"),
        ('{"comand": "true"}', "comand"),
        ("{}", "either a command"),
        ('{"command": "true", "argv": ["true"]}', "either a command"),
        ('{"command": "true", "id": "a b"}', "job name"),
        ('{"command": "true", "max_retries": -1}', "retries"),
        ('{"command": "true", "timeout": -1}', "timeout"),
        ('{"command": "true", "run_at": "tomorrow"}', "run_at"),
        ('{"command": "true", "run_at": "2026-01-01T00:00:00"}', "time zone"),
        ('{"command": "true", "depends_on": ["nobody"]}', "nobody"),
        ('{"command": "true", "priority": 1e9}', "no job"),
        *((f'{{"command": "true", "{name}": ""}}', f"$.{name}") for name in NEVER_EMPTY),
        ('{"command": ""}', "$.command"),
        ('{"command": "", "argv": ["true"]}', "$.command"),
        ('{"argv": []}', "$.argv"),
        ('{"type": "", "command": "true"}', "$.type"),
        ('{"argv": [""]}', "argv begins with the program"),
        ('{"argv": ["", "a"]}', "argv begins with the program"),
        ('{"command": "true", "type": "command:"}', "a name after command:"),
        ('{"command": "true", "queue": "headwater/jobs"}', "choose another queue"),
    ],
)
def test_a_job_that_is_none_is_refused_with_the_reason(queuectl: Queuectl, job: str, reason: str) -> None:
    ended = queuectl.run("enqueue", job)
    assert ended.code == 2, ended
    assert reason in ended.err
    assert queuectl.run("status", "--json").code in (0, 3)


def test_a_name_that_stands_twice_in_a_job_is_wrong_usage_and_nothing_is_enqueued(queuectl: Queuectl) -> None:
    refused = queuectl.expect(2, "enqueue", '{"id": "a", "command": "true", "id": "b"}')
    assert "'id' stands twice in one object" in refused.err
    assert queuectl.expect(0, "list", "--json").documents() == []


def test_an_id_that_comes_twice_in_one_call_is_wrong_usage(queuectl: Queuectl) -> None:
    ended = queuectl.expect(2, "enqueue", GOOD, GOOD)
    assert "these ids come more than once: job1" in ended.err
    queuectl.expect(0, "enqueue", GOOD)
    assert "there is a job job1 already" in queuectl.expect(1, "enqueue", GOOD).err


# ── looking and changing ──


def test_jobs_are_listed_as_tables_and_as_lines_of_json(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD, '{"id": "later", "command": "true", "delay": 60, "queue": "mail"}')
    assert [job["id"] for job in queuectl.expect(0, "list", "--json").documents()] == ["later", "job1"]
    assert [job["id"] for job in queuectl.expect(0, "list", "--state", "scheduled", "--json").documents()] == ["later"]
    table = queuectl.expect(0, "list", "--queue", "default").lines()
    assert table[0].split()[:3] == ["ID", "STATE", "QUEUE"]
    assert table[1].split()[:3] == ["job1", "pending", "default"]
    assert "no such state" in queuectl.expect(2, "list", "--state", "lost").err


def test_a_job_that_is_not_there_is_not_found(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    for command in ("show", "cancel", "retry", "logs"):
        ended = queuectl.expect(1, command, "nobody", "--json")
        assert ended.error()["code"] == "not_found"


def test_a_job_is_cancelled_and_armed_again(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    assert queuectl.expect(0, "cancel", "job1").out == "cancelled: job1\n"
    assert queuectl.expect(1, "cancel", "job1", "--json").error()["code"] == "job_state"
    assert queuectl.expect(0, "retry", "job1", "--json").document() == {"ids": ["job1"], "count": 1}


def test_settings_are_kept_and_hold_for_new_jobs(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    assert queuectl.expect(0, "config", "set", "max-retries", "5").out == "max-retries is 5\n"
    queuectl.expect(0, "config", "set", "backoff-base", "3", "--queue", "mail")
    assert queuectl.expect(0, "config", "get", "max-retries").out == "5\n"
    assert queuectl.expect(0, "config", "get", "backoff-base", "--queue", "mail").out == "3\n"
    assert queuectl.expect(0, "config", "list", "--json").document()["backoff-base"] == 2
    queuectl.expect(0, "enqueue", '{"id": "new", "command": "true"}')
    assert queuectl.expect(0, "show", "new", "--json").document()["max_retries"] == 5
    assert queuectl.expect(0, "show", "job1", "--json").document()["max_retries"] == 3
    assert queuectl.expect(0, "config", "unset", "max-retries").out == "max-retries is 3 again\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("max-retries", "many"), "max-retries must be a whole number from 0 to 1,000; got 'many'"),
        (("max-retries", "1001"), "max-retries"),
        (("backoff-base", "0.5"), "backoff-base must be a number from 1"),
        (("colour", "red"), "no such job setting: 'colour'; there are max-retries"),
        (("lease", "60", "--queue", "mail"), "a queue cannot have its own"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(
    queuectl: Queuectl, arguments: tuple[str, ...], reason: str
) -> None:
    ended = queuectl.run("config", "set", *arguments)
    assert ended.code != 0
    assert reason in ended.err


def test_a_queue_is_paused_and_goes_on(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    queuectl.expect(0, "pause", "default")
    assert "paused" in queuectl.expect(0, "status").out
    queuectl.expect(0, "resume", "default")
    assert "paused" not in queuectl.expect(0, "status").out


def test_a_schedule_is_added_listed_paused_and_removed(queuectl: Queuectl) -> None:
    queuectl.expect(0, "schedule", "add", "nightly", '{"command": "backup"}', "--cron", "0 3 * * *")
    (schedule,) = queuectl.expect(0, "schedule", "list", "--json").documents()
    assert (schedule["name"], schedule["cron"], schedule["job"]) == ("nightly", "0 3 * * *", {"command": "backup"})
    assert schedule["next_at"].endswith("T03:00:00.000Z")
    queuectl.expect(0, "schedule", "pause", "nightly")
    again = queuectl.expect(0, "schedule", "add", "nightly", '{"command": "backup"}', "--cron", "0 3 * * *")
    assert again.out == "nightly rests as before; schedule resume lets it go on\n"
    assert queuectl.expect(0, "schedule", "list", "--json").document()["next_at"] is None
    queuectl.expect(0, "schedule", "resume", "nightly")
    queuectl.expect(0, "schedule", "remove", "nightly")
    assert queuectl.expect(0, "schedule", "list", "--json").out == ""
    assert "cron" in queuectl.expect(2, "schedule", "add", "x", '{"command": "a"}', "--cron", "99 * * * *").err
    assert "either --cron or --every" in queuectl.expect(2, "schedule", "add", "x", '{"command": "a"}').err


def test_no_command_shows_the_values_of_an_environment(queuectl: Queuectl) -> None:
    job = {"command": "exit 3", "env": {"PASSWORD": "c4n4ry"}, "max_retries": 0}
    queuectl.expect(0, "enqueue", json.dumps({**job, "id": "a"}), json.dumps({**job, "id": "b", "delay": 60}))
    queuectl.expect(0, "schedule", "add", "nightly", json.dumps(job), "--cron", "@daily")
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
    for words in ("show a", "list", "logs a", "dlq list", "dlq show a", "schedule list", "status", "stats"):
        for format in ((), ("--json",)):
            ended = queuectl.expect(0, *words.split(), *format)
            assert "c4n4ry" not in ended.out + ended.err, words
    assert queuectl.expect(0, "show", "a", "--json").document()["env"] == ["PASSWORD"]
    assert queuectl.expect(0, "schedule", "list", "--json").document()["job"]["env"] == ["PASSWORD"]
    refused = queuectl.expect(2, "enqueue", '{"command": "a", "env": {"A=B": "c4n4ry"}}')
    assert "c4n4ry" not in refused.err


def test_waiting_gives_up_when_the_time_is_over(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    assert queuectl.expect(4, "wait", "job1", "--timeout", "0.05s").out == "job1 has not ended\n"


def test_a_limit_is_set(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    limited = queuectl.expect(0, "limit", "shell", "--rate", "10", "--per", "1m", "--json").document()
    assert limited["jobs"] == 1


def test_cleanup_without_old_jobs_drops_nothing(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    assert queuectl.expect(0, "cleanup").out == "dropped 0 jobs\n"
    assert queuectl.expect(0, "cleanup", "--older-than", "7d", "--json").document() == {"dropped": 0}
    assert "length of time" in queuectl.expect(2, "cleanup", "--older-than", "soon").err


def test_a_database_of_its_own_has_jobs_of_its_own(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", GOOD)
    queuectl.expect(0, "enqueue", GOOD, "--database", "tenant")
    assert queuectl.expect(0, "list", "--database", "tenant", "--json").document()["id"] == "job1"


@pytest.mark.parametrize(
    "command",
    [
        "enqueue",
        "status",
        "list",
        "show",
        "logs",
        "cancel",
        "retry",
        "wait",
        "stats",
        "cleanup",
        "pause",
        "resume",
    ]
    + [f"limit {name}" for name in ("set", "list", "clear")]
    + [f"dlq {name}" for name in ("list", "show", "retry", "purge")]
    + [f"config {name}" for name in ("set", "get", "unset", "list")]
    + [f"schedule {name}" for name in ("add", "list", "pause", "resume", "run", "remove")]
    + [f"worker {name}" for name in ("start", "stop", "list")],
)
def test_every_command_explains_itself_with_an_example(queuectl: Queuectl, command: str) -> None:
    help_text = queuectl.expect(0, *command.split(), "--help").out
    assert f"queuectl {command}" in help_text
    assert "--json" in help_text
