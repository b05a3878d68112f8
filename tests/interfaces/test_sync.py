"""The sync interface is the async one over a bridge: same verbs, same outcomes, from plain threads."""

import contextlib
import inspect
import threading
from pathlib import Path

import pytest

import headwater
import headwater.sync
from headwater.errors import Closed, InvalidInput, StoreMissing
from tests.doors.live_door import LiveDoor, on_the_edge

SOON = 20.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "headwater.db")


def fail_in_the_block(queue: headwater.sync.Queue) -> None:
    with queue.consume(group="g") as messages:
        for _ in messages:
            raise ValueError("unreadable")


def test_a_message_goes_through_without_async(path: str) -> None:
    with headwater.sync.open(path) as hw:
        orders = hw.queue("orders")
        assert orders.push({"id": 7}).offset == 0
        [message] = orders.pop(group="billing")
        assert message.payload == {"id": 7}
        orders.ack(message)
        assert orders.pop(group="billing") == []


@pytest.mark.parametrize("way", ["library", "http"])
@pytest.mark.parametrize("call", ["pop", "run", "consume"])
def test_closing_ends_the_calls_of_other_threads(path: str, way: str, call: str) -> None:
    """They get what was there, or Closed, and none of them waits for ever."""
    with contextlib.ExitStack() as stack:
        address = path
        if way == "http":
            door = LiveDoor(Path(path), on_the_edge)
            door.start()
            stack.callback(door.stop)
            address = door.url
        for _ in range(5):
            outcomes: list[object] = []
            begun = threading.Event()
            with (headwater.sync.open if way == "library" else headwater.sync.connect)(address) as hw:
                thread = threading.Thread(target=wait_for_ever, args=(hw, call, begun, outcomes))
                thread.start()
                assert begun.wait(SOON)
            thread.join(SOON)
            assert not thread.is_alive()
            assert outcomes in ([[]], [None], ["Closed"])


def wait_for_ever(hw: headwater.sync.Headwater, call: str, begun: threading.Event, outcomes: list[object]) -> None:
    orders = hw.queue("orders")
    try:
        orders.pop(group="g")
        begun.set()
        if call == "pop":
            outcomes.append(orders.pop(group="g", wait=30))
        elif call == "run":
            outcomes.append(orders.run(print, group="g", stop_on_signals=False))
        else:
            outcomes.append(list(orders.consume(group="g")))
    except Closed as error:
        outcomes.append(type(error).__name__)


def test_every_verb_of_a_queue_is_there() -> None:
    verbs = {name for name, value in vars(headwater.Queue).items() if not name.startswith("_") and callable(value)}
    assert verbs <= set(dir(headwater.sync.Queue))
    for name in verbs:
        assert not inspect.iscoroutinefunction(getattr(headwater.sync.Queue, name))


def test_a_block_around_the_loop_carries_the_error_into_the_dead_letter(path: str) -> None:
    with headwater.sync.open(path) as hw:
        queue = hw.queue("orders")
        queue.configure(retry_limit=0)
        queue.push(1)
        with pytest.raises(ValueError, match="unreadable"):
            fail_in_the_block(queue)
        assert [letter.error for letter in queue.dead_letters()] == ["ValueError: unreadable"]


def test_threads_share_one_headwater(path: str) -> None:
    with headwater.sync.open(path) as hw:
        queue = hw.queue("orders")
        threads = [threading.Thread(target=queue.push, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        messages = queue.pop(group="g", batch=100)
        assert sorted(message.payload for message in messages) == list(range(16))


def test_a_transaction_takes_effect_together(path: str) -> None:
    with headwater.sync.open(path) as hw:
        hw.queue("orders").push(1)
        messages = hw.queue("orders").pop(group="g")
        with hw.transaction() as together:
            together.ack(messages)
            together.push("invoices", 1)
        with pytest.raises(ZeroDivisionError), hw.transaction() as dropped:
            dropped.push("invoices", 1 // 0)
        assert [status.records for status in hw.queues()] == [1, 1]


def test_another_database_is_apart(path: str) -> None:
    with headwater.sync.open(path) as hw:
        hw.database("tenant").queue("orders").push(1)
        assert hw.queues() == []


def test_a_store_that_cannot_be_opened_leaves_no_thread(path: str) -> None:
    with pytest.raises(StoreMissing):
        headwater.sync.open(path, create=False)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headwater")]


def test_a_closed_headwater_says_so(path: str) -> None:
    hw = headwater.sync.open(path)
    hw.close()
    with pytest.raises(Closed):
        hw.queue("orders").push(1)


def test_a_headwater_that_answers_from_memory_still_delivers(path: str) -> None:
    with headwater.sync.open(path, durability="memory") as hw:
        queue = hw.queue("orders")
        assert queue.push(1).offset is None
        [message] = queue.pop(group="g", wait=5)
        queue.extend(message)
        queue.extend([])
        queue.ack(message)
        assert queue.pop(group="g") == []


def test_a_loop_that_has_ended_stays_ended_and_a_block_that_was_left_is_over(path: str) -> None:
    with headwater.sync.open(path) as hw:
        queue = hw.queue("orders")
        queue.push(1)
        with queue.consume(idle_seconds=0) as messages:
            assert [message.payload for message in messages] == [1]
            queue.push(2)
            assert [message.payload for message in messages] == []
        with pytest.raises(InvalidInput, match="block"):
            iter(messages)
        bare = iter(queue.consume(idle_seconds=0))
        assert [message.payload for message in bare] == [2]
        queue.push(3)
        assert [message.payload for message in bare] == []
        with messages:
            assert [message.payload for message in messages] == [3]
