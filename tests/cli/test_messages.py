"""`push`, `pop` and `tail`: every message goes where it should, is shown, and none is lost on the way."""

import json
import signal
import subprocess

import pytest

import headwater
from headwater import Raw
from headwater.cli import messages
from headwater.cli.settings import Settings
from headwater.clock import SECOND, SystemClock, Timestamp
from headwater.log.operations import Retain
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record
from headwater.stores.questions import Segment
from tests.cli.program import COMMAND, Program, end, environment
from tests.faults.bent_clock import BentClock


def ndjson(*values: object) -> bytes:
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


def shown_payloads(program: Program, queue: str = "orders") -> list[object]:
    """Everything in a queue, in order."""
    ended = program.run("tail", queue, "--from", "beginning", "--no-follow", "--json")
    return [document["payload"] for document in ended.documents()]


# ── push ──


def test_a_push_makes_the_store_and_says_where_the_message_is(program: Program) -> None:
    ended = program.expect(0, "push", "orders", '{"id": 7}', '{"id": 8}', "--partition", "customer-42")
    assert ended.out == "pushed 2 messages to orders, partition customer-42, offsets 0 to 1 (synced)\n"
    assert program.store.stat().st_mode & 0o777 == 0o600
    document = program.expect(0, "push", "orders", "[]", "--type", "x", "--durability", "written", "--json").document()
    assert document == {
        "queue": "orders",
        "partition": "Default",
        "partitions": 1,
        "messages": 1,
        "duplicates": 0,
        "first_offset": 0,
        "last_offset": 0,
        "durability": "written",
        "complete": True,
    }
    assert shown_payloads(program) == [{"id": 7}, {"id": 8}, []]


def test_a_push_for_later_is_not_popped_before(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "--delay", "3600")
    program.expect(4, "pop", "orders")
    assert program.expect(0, "queues", "show", "orders", "--json").document()["delayed"] == 1
    program.expect(0, "push", "orders", "2", "--delay", "0.01")
    assert program.expect(0, "pop", "orders", "--wait", "20", "--json").document()["payload"] == 2


def test_a_second_push_with_the_same_id_is_a_duplicate(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "--transaction-id", "a")
    again = program.expect(0, "push", "orders", "1", "--transaction-id", "a", "--json").document()
    assert (again["messages"], again["duplicates"], again["first_offset"]) == (0, 1, 0)
    assert "1 duplicate left out" in program.expect(0, "push", "orders", "1", "--transaction-id", "a").out
    assert shown_payloads(program) == [1]


def test_what_is_pushed_in_memory_is_kept_when_the_program_ends(program: Program) -> None:
    assert program.expect(0, "push", "orders", "1", "--durability", "memory").out.endswith("(memory)\n")
    assert shown_payloads(program) == [1]


def test_a_payload_that_is_not_json_is_refused_before_a_store_is_made(program: Program) -> None:
    ended = program.expect(1, "push", "orders", "1", "{bad")
    assert ended.err.startswith("error[invalid_payload]: payload 2: ")
    assert list(program.folder.iterdir()) == []


def test_lines_are_pushed_from_a_pipe_and_from_a_file(program: Program) -> None:
    (program.folder / "some.ndjson").write_bytes(b'{"id": 1}\r\n\n  2  \n"three"')
    program.expect(0, "push", "orders", "--file", "some.ndjson")
    program.expect_process(0, "push", "orders", given=ndjson(4, 5))
    program.expect_process(0, "push", "orders", "--file", "-", given=ndjson(6))
    assert shown_payloads(program) == [{"id": 1}, 2, "three", 4, 5, 6]


def test_a_folder_is_no_file_to_push(program: Program) -> None:
    assert "cannot be read: Is a directory" in program.expect(2, "push", "orders", "--file", ".").err


def test_a_file_is_pushed_in_batches_that_are_whole_or_not_there(program: Program) -> None:
    lines = [str(number) for number in range(2_600)]
    lines[2_400] = '{"id": '
    (program.folder / "some.ndjson").write_text("\n".join(lines))
    ended = program.expect(1, "push", "orders", "--file", "some.ndjson")
    assert ended.out.startswith("pushed 2,000 messages to orders")
    assert ended.err.startswith("error[invalid_payload]: line 2401: ")
    assert ended.err.endswith("; lines 1 to 2,000 are pushed, nothing after them\n")
    assert shown_payloads(program) == list(range(2_000))
    assert program.expect(0, "queues", "--json").document()["records"] == 2_000


def test_a_bad_line_in_the_first_batch_leaves_nothing(program: Program) -> None:
    ended = program.expect_process(1, "push", "orders", "--json", given=b"1\n2\nnonsense\n3\n")
    assert ended.out == ""
    assert ended.error()["code"] == "invalid_payload"
    assert ended.error()["message"].startswith("line 3: ")
    assert ended.error()["message"].endswith("nothing was pushed")


@pytest.mark.parametrize(
    "line",
    [b'"' + b"x" * 300_000 + b'"\n', b"x" * 3_000_000, b'"\xff"\n', b"[" * 100_000],
    ids=["too large", "far too large", "no UTF-8", "too deep"],
)
def test_a_line_that_cannot_be_a_message_is_told_with_its_number(program: Program, line: bytes) -> None:
    ended = program.expect_process(1, "push", "orders", given=b"\n" + line)
    assert "line 2: " in ended.err


def test_an_empty_input_is_nothing_to_push(program: Program) -> None:
    assert program.expect_process(4, "push", "orders").err == "there was nothing to push\n"


def test_a_line_of_a_slow_producer_is_pushed_at_once(program: Program) -> None:
    program.expect(0, "push", "other", "1")
    with program.start("tail", "orders", "--json") as tail, program.start("push", "orders") as push:
        assert tail.stderr is not None
        assert "there is no queue orders yet" in tail.stderr.readline()
        for number in range(3):
            assert push.stdin is not None
            push.stdin.write(f"{number}\n")
            push.stdin.flush()
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["payload"] == number
        out, _ = push.communicate(timeout=30)
        assert out == "pushed 3 messages to orders, over 3 lanes (synced)\n"


def test_ctrl_c_ends_a_push_that_waits_for_input(program: Program) -> None:
    program.expect(0, "push", "orders", "0")
    with (
        program.start("tail", "orders", "--json", "--from", "beginning") as tail,
        program.start("push", "orders") as push,
    ):
        assert push.stdin is not None
        push.stdin.write("1\n")
        push.stdin.flush()
        assert tail.stdout is not None
        assert [json.loads(tail.stdout.readline())["payload"] for _ in range(2)] == [0, 1]
        push.send_signal(signal.SIGINT)
        assert push.wait(30) == 130


def test_a_full_queue_is_an_error_that_says_how_far_it_got(program: Program) -> None:
    program.expect(0, "push", "orders", "0")
    program.expect(0, "queues", "configure", "orders", "size_max=2")
    program.expect(0, "push", "orders", "1")
    ended = program.expect_process(1, "push", "orders", given=b"2\n3\n")
    assert ended.err.startswith("error[queue_full]: ")
    assert ended.err.endswith("; nothing was pushed\n")


def test_a_bar_is_shown_on_a_terminal_while_a_file_is_pushed(program: Program) -> None:
    (program.folder / "some.ndjson").write_bytes(ndjson(*range(5_000)))
    shown = program.run_on_terminal("push", "orders", "--file", "some.ndjson")
    assert shown.code == 0
    assert "pushing to orders" in shown.out
    assert "5,000 messages" in shown.out


# ── pop ──


def test_a_pop_prints_messages_and_acks_them(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "2", "3", "--type", "order.created", "--partition", "p")
    first = program.expect(0, "pop", "orders", "--batch", "2").lines()
    assert [line.split("  ", 1)[1] for line in first] == [
        "p #0  order.created  1",
        "p #1  order.created  2",
    ]
    document = program.expect(0, "pop", "orders", "--json").document()
    assert document | {"created_at": ""} == {
        "queue": "orders",
        "partition": "p",
        "offset": 2,
        "lsn": 1,
        "group": "__QUEUE_MODE__",
        "attempts": 1,
        "created_at": "",
        "type": "order.created",
        "payload": 3,
    }
    nothing = program.expect(4, "pop", "orders")
    assert (nothing.out, nothing.err) == ("", "nothing waits in orders\n")


def test_every_group_gets_every_message(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    for group in ("billing", "mail"):
        assert program.expect(0, "pop", "orders", "--group", group, "--json").document()["group"] == group


def test_a_pop_without_ack_leaves_the_message_to_come_again(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    program.expect(0, "queues", "configure", "orders", "lease_seconds=0.5")
    leased = program.expect(0, "pop", "orders", "--no-ack", "--json").document()
    assert leased["token"] > 0
    again = program.expect(0, "pop", "orders", "--wait", "10", "--no-ack")
    assert again.err.startswith("not acked: they come again in ")
    assert program.expect(0, "pop", "orders", "--wait", "10", "--json").document()["attempts"] == 3


def test_a_pop_of_one_partition_takes_nothing_of_another(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "--partition", "a")
    program.expect(4, "pop", "orders", "--partition", "b")
    assert program.expect(0, "pop", "orders", "--partition", "a", "--json").document()["partition"] == "a"


def test_a_pop_of_a_queue_that_is_not_there_finds_nothing_and_makes_nothing(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert program.expect(4, "pop", "nope", "--json").out == ""
    assert [found["queue"] for found in program.expect(0, "queues", "--json").documents()] == ["orders"]


def test_a_waiting_pop_is_woken_by_a_push_of_another_process(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    program.expect(0, "pop", "orders")
    with program.held_open(), program.start("pop", "orders", "--wait", "30", "--json") as waiting:
        program.expect(0, "push", "orders", '{"id": 2}')
        out, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, json.loads(out)["payload"]) == (0, {"id": 2})


def test_messages_that_nobody_read_are_given_back(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    late = ("--group", "late", "--partition", "other")
    with program.held_open(), program.start("pop", "orders", "--wait", "30", *late) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.close()
        program.expect(0, "push", "orders", "2", "--partition", "other")
        assert waiting.wait(30) == 141
    again = program.expect(0, "pop", "orders", *late, "--json").document()
    assert (again["payload"], again["attempts"]) == (2, 1)


def test_ctrl_c_ends_a_waiting_pop(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    with program.held_open(), program.start("pop", "orders", "--wait", "30", "--partition", "none") as waiting:
        # The group is noted by the first look of the pop, so that it waits from then on.
        while not program.expect(0, "groups", "--json").out:
            pass
        ended = end(waiting, signal.SIGINT)
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_message_cannot_steer_the_terminal(program: Program) -> None:
    escape = "\x9b31m"
    program.expect(0, "push", "orders", json.dumps(escape, ensure_ascii=False), "--type", "\x1b[2J")
    shown = program.expect(0, "tail", "orders", "--from", "beginning", "--no-follow").out
    assert "\\u009b31m" in shown
    assert "\\u001b[2J" in shown
    assert not {"\x1b", "\x9b"} & set(shown)


# ── tail ──


def test_a_tail_shows_what_was_there_and_then_what_other_processes_push(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "--partition", "a")
    with program.start("tail", "orders", "--from", "beginning", "--limit", "3") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().endswith("  a #0  1\n")
        program.expect(0, "push", "other", "9")
        program.expect(0, "push", "orders", '{"id": 2}', "3", "4", "--partition", "b")
        out, err = tail.communicate(timeout=20)
    assert tail.returncode == 0
    assert [line.split("  ", 1)[1] for line in out.splitlines()] == ['b #0  {"id": 2}', "b #1  3"]
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "999999"), "there is nothing of orders from LSN 999,999 on"),
        (("--from", "end"), "there is nothing of orders from end on"),
        (("--from", "beginning", "--partition", "b"), "there is nothing of orders, partition b from beginning on"),
    ],
)
def test_a_tail_that_shows_nothing_says_why(program: Program, arguments: tuple[str, ...], said: str) -> None:
    program.expect(0, "push", "orders", "1", "--partition", "a")
    ended = program.expect(4, "tail", "orders", *arguments, "--no-follow")
    assert (ended.out, said in ended.err) == ("", True)
    assert ("the log ends at LSN 1: nothing before 999,999 will be shown" in ended.err) == ("999999" in arguments)


def test_a_tail_takes_nothing_and_leaves_no_group(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert shown_payloads(program) == [1]
    assert program.expect(0, "groups", "--json").out == ""
    assert program.expect(0, "pop", "orders", "--json").document()["attempts"] == 1


def test_a_tail_begins_at_the_lsn_it_is_given(program: Program) -> None:
    for number in range(4):
        program.expect(0, "push", "orders", str(number))
    ended = program.expect(0, "tail", "orders", "--from", "3", "--no-follow", "--json")
    assert [(one["lsn"], one["payload"]) for one in ended.documents()] == [(3, 2), (4, 3)]
    assert program.expect(4, "tail", "orders", "--no-follow").out == ""
    assert program.expect(4, "tail", "orders", "--from", "beginning", "--no-follow", "--partition", "x").out == ""


def test_a_tail_that_does_not_follow_needs_its_queue(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert program.expect(1, "tail", "nope", "--no-follow").err == "error[not_found]: there is no queue 'nope'\n"


def test_ctrl_c_ends_a_tail_without_a_word(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    with program.start("tail", "orders", "--from", "beginning") as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        ended = end(tail, signal.SIGINT)
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_tail_whose_reader_leaves_ends_quietly(program: Program) -> None:
    program.expect(0, "push", "orders", *map(str, range(900)))
    command = [*COMMAND, "tail", "orders", "--from", "beginning"]
    with subprocess.Popen(
        command,
        cwd=program.folder,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().endswith("#0  0\n")
        tail.stdout.close()
        program.expect(0, "push", "orders", "1")
        assert tail.wait(20) == 141
        assert tail.stderr is not None
        assert tail.stderr.read() == ""


def segment(first_offset: int, count: int, partition_id: int = 1) -> Segment:
    return Segment(
        lsn=Lsn(1),
        lane=Lane("main", "orders", "", "", "a"),
        partition_id=PartitionId(partition_id),
        first_offset=Offset(first_offset),
        written_at=Timestamp(0),
        origin=0,
        records=[Record(data=Raw(b"1"))] * count,
    )


def test_a_tail_that_retention_overtook_says_how_much_it_missed(capsys: pytest.CaptureFixture[str]) -> None:
    watch = messages.Watch(Settings("a.db", "main", True), "", 0, True)
    for part in (segment(5, 2), segment(0, 1, partition_id=2), segment(7, 1), segment(11, 1)):
        watch.show(part)
    printed = capsys.readouterr()
    assert [json.loads(line)["offset"] for line in printed.out.splitlines()] == [5, 6, 0, 7, 11]
    assert printed.err == "retention dropped 3 messages of partition a unread\n"


async def test_a_pop_that_retention_overtook_says_how_much_it_missed(program: Program) -> None:
    clock = BentClock(SystemClock().now() - 20 * SECOND)
    async with headwater.open(str(program.store), clock=clock) as hw:
        queue = hw.queue("orders")
        await queue.push_many([1, 2], ttl_seconds=10, partition="p")
        await queue.push(3, partition="p")
        await queue.release(await queue.pop(group="g"))
        clock.move(10)
        assert (await hw.committer.submit(Retain())).result.records == 2
    ended = program.expect_process(0, "pop", "orders", "--group", "g")
    assert ended.err == "retention dropped 2 messages before this one unread\n"
    assert ended.out.endswith("p #2  3\n")
