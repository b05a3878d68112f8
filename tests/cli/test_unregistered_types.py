"""Whoever names a function that nobody has registered is told so, and the job is enqueued all the same."""

import asyncio
from pathlib import Path

import pytest

import headwater
from headwater.model.job_policy import JobPolicy
from tests.cli.queuectl import Queuectl

KNOWN = "tasks:send_email"
WARNING = "no app or worker has registered"


@pytest.fixture
def queuectl(tmp_path: Path) -> Queuectl:
    return Queuectl(tmp_path)


def register(queuectl: Queuectl, *names: str) -> None:
    async def put() -> None:
        async with headwater.open(str(queuectl.folder / "headwater.db")) as hw:
            await hw.jobs.register({name: JobPolicy() for name in names})

    asyncio.run(put())


def test_a_type_that_nobody_registered_is_enqueued_with_a_warning_that_names_the_one_that_may_be_meant(
    queuectl: Queuectl,
) -> None:
    register(queuectl, KNOWN)
    ended = queuectl.expect(0, "enqueue", "--type", "tasks:sned_email", "--id", "a")
    assert ended.out == "enqueued a\n"
    assert WARNING in ended.err
    assert f"did you mean {KNOWN}?" in ended.err
    assert queuectl.expect(0, "show", "a", "--json").document()["state"] == "pending"


def test_json_for_programs_stays_clean(queuectl: Queuectl) -> None:
    register(queuectl, KNOWN)
    ended = queuectl.expect(0, "enqueue", "--json", '{"id": "a", "type": "elsewhere:work"}')
    assert ended.document() == {"id": "a", "duplicate": False}
    assert WARNING in ended.err
    assert "did you mean" not in ended.err


@pytest.mark.parametrize("type", [KNOWN, "command:backup"])
def test_a_type_that_is_registered_and_a_command_go_without_a_word(queuectl: Queuectl, type: str) -> None:
    register(queuectl, KNOWN)
    work = ["--command", "true"] if type.startswith("command:") else []
    assert queuectl.expect(0, "enqueue", "--type", type, *work).err == ""


def test_where_nobody_has_registered_any_there_is_nothing_to_say(queuectl: Queuectl) -> None:
    assert queuectl.expect(0, "enqueue", "--type", "tasks:sned_email").err == ""


def test_of_many_types_some_are_named_and_the_others_counted(queuectl: Queuectl) -> None:
    register(queuectl, KNOWN)
    jobs = [f'{{"type": "other:work{number}"}}' for number in range(8)]
    lines = queuectl.expect(0, "enqueue", *jobs, *jobs).err.splitlines()
    assert len(lines) == 6
    assert "3 more types" in lines[-1]


def test_a_schedule_of_a_type_that_nobody_registered_is_warned_of(queuectl: Queuectl) -> None:
    register(queuectl, KNOWN)
    ended = queuectl.expect(0, "schedule", "add", "nightly", '{"type": "tasks:send_emial"}', "--every", "1d")
    assert f"did you mean {KNOWN}?" in ended.err
    assert queuectl.expect(0, "schedule", "add", "nightly", f'{{"type": "{KNOWN}"}}', "--every", "1d").err == ""
