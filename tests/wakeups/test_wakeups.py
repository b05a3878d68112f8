"""A commit elsewhere wakes: by another connection, by another process, beside our own commits."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headwater.log.operations import Configure
from headwater.model.names import Lsn
from headwater.stores.contract import Store
from headwater.wakeups.contract import Found
from headwater.wakeups.data_version import BUSY_LOOKS, PACES_SECONDS, QUIET_LOOKS, DataVersionWakeup
from headwater.wakeups.inotify import InotifyWakeup, is_available
from tests.contracts.clock import BEGINNING
from tests.contracts.log import push
from tests.wakeups.conftest import WAIT_SECONDS, Listener

needs_inotify = pytest.mark.skipif(not is_available(), reason="this system has no inotify")

PUSHER = """
import asyncio, sys, headwater
async def main() -> None:
    async with headwater.open(sys.argv[1], housekeeping=False) as hw:
        await hw.queue("orders").push("from another process")
asyncio.run(main())
"""


async def test_a_commit_by_another_connection_wakes(listener: Listener, other: Store) -> None:
    await other.apply([push(1)], BEGINNING)
    await listener.hear()
    assert listener.store.touched_now(Lsn(0), 10)


async def test_a_commit_by_another_process_wakes(listener: Listener, path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PUSHER, str(path))
    assert await process.wait() == 0
    await listener.hear()
    touched = listener.store.touched_now(Lsn(0), 10)
    assert touched is not None
    assert [touch.lane.queue for touch in touched] == ["orders"]


async def test_a_commit_without_records_wakes_too(listener: Listener, other: Store) -> None:
    await other.apply([Configure(queue="orders")], BEGINNING)
    await listener.hear()
    assert listener.calls > 0


async def test_every_commit_is_seen_sooner_or_later(listener: Listener, other: Store) -> None:
    for number in range(50):
        await other.apply([push(number)], BEGINNING)
        if number % 10 == 0:
            await asyncio.sleep(0)
    while len(await listener.store.touched(Lsn(0), 100)) < 50:
        await listener.hear()
    assert listener.calls > 0


async def test_a_commit_is_heard_beside_our_own(listener: Listener, other: Store) -> None:
    """While this process writes without pause, its own wakes must not drown another's."""
    for number in range(30):
        await listener.store.apply([push(number)], BEGINNING)
        listener.own = True
        await asyncio.sleep(0)
    await other.apply([push("theirs")], BEGINNING)
    for number in range(30):
        await listener.store.apply([push(number)], BEGINNING)
        listener.own = True
        await asyncio.sleep(0)
    await listener.hear()
    assert not listener.heard.is_set()


async def test_a_wakeup_that_was_closed_calls_no_more(listener: Listener, other: Store) -> None:
    await other.apply([push(1)], BEGINNING)
    await listener.hear()
    calls = listener.calls
    listener.wakeup.close()
    try:
        await other.apply([push(2)], BEGINNING)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert listener.calls == calls
    finally:
        listener.wakeup = DataVersionWakeup(lambda: False)


@needs_inotify
async def test_inotify_says_which_file_it_cannot_watch(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"missing.*data_version"):
        InotifyWakeup(str(tmp_path / "missing"), lambda: False)
    assert set(os.listdir("/proc/self/fd")) <= before


@needs_inotify
async def test_inotify_is_quiet_while_nothing_happens(path: Path, other: Store) -> None:
    calls = 0

    def wake() -> Found:
        nonlocal calls
        calls += 1
        return Found.NOTHING

    wakeup = InotifyWakeup(f"{other.traits.location}-wal", lambda: False)
    wakeup.start(wake)
    for _ in range(50):
        await asyncio.sleep(0.001)
    wakeup.close()
    assert calls == 0


async def test_asking_slows_down_when_all_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    paces: list[float] = []
    news = False

    class Timer:
        def cancel(self) -> None:
            """Nothing runs."""

    def note(delay: float, look: object) -> Timer:
        paces.append(delay)
        return Timer()

    monkeypatch.setattr(loop, "call_later", note)
    wakeup = DataVersionWakeup(lambda: False)
    wakeup.start(lambda: Found.NEWS if news else Found.NOTHING)
    for _ in range(BUSY_LOOKS + QUIET_LOOKS + 5):
        wakeup._look()
    assert paces[:3] == [PACES_SECONDS[0]] * 3
    assert paces[BUSY_LOOKS] == PACES_SECONDS[1]
    assert paces[-1] == PACES_SECONDS[2]
    assert paces == sorted(paces)
    news = True
    wakeup._look()
    assert paces[-1] == PACES_SECONDS[0]
    wakeup.close()


async def test_a_commit_is_heard_by_those_who_put_it_off_as_well(listener: Listener, other: Store) -> None:
    listener.wakeup.defer(0.02)
    for number in range(1, 4):
        await other.apply([push(number)], BEGINNING)
        await listener.hear()
        assert len(listener.store.touched_now(Lsn(0), 10) or ()) == number


@needs_inotify
async def test_what_was_put_off_is_heard_at_once_when_there_is_haste_again(path: Path, other: Store) -> None:
    wakeup = InotifyWakeup(f"{path}-wal", lambda: False)
    heard = asyncio.Event()

    def wake() -> Found:
        heard.set()
        return Found.NEWS

    wakeup.start(wake)
    wakeup.defer(3_600.0)
    await other.apply([push(1)], BEGINNING)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not heard.is_set()
    wakeup.defer(0.0)
    await asyncio.wait_for(heard.wait(), WAIT_SECONDS)
    wakeup.close()
