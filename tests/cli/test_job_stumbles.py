"""What makes people stumble over `queuectl`: each says what is wrong, and ends as documented."""

from pathlib import Path

import pytest

from tests.cli.queuectl import Queuectl

# One job that is wrong, in whichever way it is given.
WRONG: dict[str, tuple[str, ...]] = {
    "an unknown field": ('{"command": "true", "retrys": 3}',),
    "an unknown flag": ("--command", "true", "--retrys", "3"),
    "a field out of range": ('{"command": "true", "retries": -1}',),
    "a flag out of range": ("--command", "true", "--retries", "-1"),
    "a field of another type": ('{"command": 7}',),
    "a flag of another type": ("--command", "true", "--retries", "many"),
    "no JSON": ("{command: true}",),
    "no object": ("[]",),
    "arguments that are no JSON": ("--type", "tasks:send", "--args", "{"),
    "nothing to run": ("{}",),
    "a name that is none": ('{"command": "true", "queue": "no such name"}',),
    "a name that is none, as a flag": ("--command", "true", "--queue", "no such name"),
    "two keys": ('{"command": "true", "limit_key": "a", "concurrency_key": "b"}',),
    "the second of two": ('{"command": "true"}', '{"command": "true", "retrys": 3}'),
    "a file with a wrong line": ("--file", "wrong.ndjson"),
    "an empty file": ("--file", "empty.ndjson"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_wrong_with_a_job_has_one_exit_code_and_adds_nothing(tmp_path: Path, wrong: str) -> None:
    queuectl = Queuectl(tmp_path)
    (tmp_path / "wrong.ndjson").write_text('{"command": "true"}\n{"retrys": 3}\n')
    (tmp_path / "empty.ndjson").write_text("\n")
    queuectl.expect(2, "enqueue", *WRONG[wrong])
    assert queuectl.expect(0, "list", "--json").documents() == []


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_to_pause_a_queue_that_never_was_holds_and_is_told(tmp_path: Path, verb: str) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"command": "true"}')
    said = queuectl.expect(0, verb, "nosuch")
    assert "there is no job queue nosuch so far" in said.err
    assert "there is default" in said.err
    assert "no job queue" not in queuectl.expect(0, verb, "default").err
    queuectl.expect(0, "resume", "default")
    queuectl.expect(0, "enqueue", '{"id": "late", "command": "true", "queue": "nosuch"}')
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
    state = queuectl.expect(0, "show", "late", "--json").document()["state"]
    assert state == ("pending" if verb == "pause" else "completed")


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_filter_that_finds_only_jobs_in_another_state_says_so(tmp_path: Path, verb: str) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"id": "done", "command": "true"}')
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
    said = queuectl.expect(4, verb, "--state", "completed", "--yes")
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "none of these jobs can be" in said.err
    found = queuectl.expect(4, verb, "--state", "completed", "--yes", "--json").document()
    assert (found["ids"], found["count"]) == ([], 0)


@pytest.mark.parametrize("state", ["pending", "processing", "failed"])
def test_jobs_that_have_not_ended_cannot_be_cleaned_up(tmp_path: Path, state: str) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"command": "true"}')
    assert "completed or cancelled or dead" in queuectl.expect(2, "cleanup", "--state", state).err
    assert len(queuectl.expect(0, "list", "--json").documents()) == 1


def test_a_job_that_waits_for_another_attempt_shows_no_start_in_the_list(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"id": "again", "command": "false", "retries": 0}')
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
    started = queuectl.expect(0, "show", "again", "--json").document()["started_at"]
    assert started
    assert started in queuectl.expect(0, "list").out
    queuectl.expect(0, "retry", "again")
    assert started not in queuectl.expect(0, "list").out
    assert "last started" in queuectl.expect(0, "show", "again").out


@pytest.mark.parametrize("option", ["--app", "--import", "--function"])
def test_an_option_without_a_name_starts_no_worker(tmp_path: Path, option: str) -> None:
    queuectl = Queuectl(tmp_path)
    said = queuectl.expect(2, "worker", "start", "--count", "1", "--drain", option, "")
    assert f"{option} is empty" in said.err


@pytest.mark.parametrize("words", [("config", "list"), ("config", "get", "lease")])
def test_to_read_settings_makes_no_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    Queuectl(tmp_path).expect(0, *words)
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_told_that_a_retry_cannot_be_undone(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"id": "a", "command": "true"}')
    queuectl.expect(0, "cancel", "a")
    asked = queuectl.expect(2, "retry", "--state", "cancelled")
    assert "say --yes" in asked.err
    assert "cannot be undone" not in asked.err
