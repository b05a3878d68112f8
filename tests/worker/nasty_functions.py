"""Functions that behave as badly as functions can. Beside each of them healthy ones run, and must not notice."""

import asyncio
import contextlib
import ctypes
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from headwater.jobs import JobApp, Retry, Snooze, current_job
from tests.worker import functions

app = JobApp()
NASTY: list[str] = []


def nasty(function: Callable[..., Any]) -> Callable[..., Any]:
    NASTY.append(function.__name__)
    app.job(name=function.__name__, retries=0, timeout=1.0)(function)
    return function


@app.job(name="healthy", retries=3)
def healthy(number: int) -> list[Any]:
    """What a call may rely on: where it is, what it may write, and that it can print and open files."""
    print("healthy", number)
    with open("/dev/null"):
        mask = os.umask(0o022)
        os.umask(mask)
    return [number, os.getcwd(), mask, str(signal.getsignal(signal.SIGTERM)), os.fstat(1).st_ino > 0]


@app.job(name="healthy_async", retries=3)
async def healthy_async(number: int) -> int:
    await asyncio.sleep(0)
    return number


@app.job(name="patient", retries=3)
async def patient(folder: str, number: int) -> int:
    """Waits, in tasks of its own, beside whatever happens."""
    (Path(folder) / f"begun-{number}").touch()
    while not (Path(folder) / f"gate-{number}").exists():
        await asyncio.gather(asyncio.sleep(0.005), asyncio.sleep(0))
    return number


@app.job(name="stop_itself_async", retries=0)
async def stop_itself_async() -> None:
    """Not among the others: who shares its loop goes down with it."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Unshowable(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class LooseRetry(Retry):
    """Forgets what it is."""

    def __init__(self) -> None:
        pass


def raising(name: str, make: Callable[[], BaseException]) -> None:
    def plain() -> None:
        raise make()

    async def awaited() -> None:
        await asyncio.sleep(0)
        raise make()

    plain.__name__, awaited.__name__ = f"raise_{name}", f"raise_{name}_async"
    nasty(plain)
    nasty(awaited)


RAISED: dict[str, Callable[[], BaseException]] = {
    "system_exit": lambda: SystemExit(3),
    "system_exit_nothing": lambda: SystemExit(),
    "keyboard_interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "cancelled_error": asyncio.CancelledError,
    "base_exception": lambda: BaseException("bare"),
    "memory_error": MemoryError,
    "stop_iteration": StopIteration,
    "unshowable": Unshowable,
    "loose_retry": LooseRetry,
    "huge": lambda: ValueError("x" * 5_000_000),
    "surrogates": lambda: ValueError("\ud800\udfff\x00\x1b[2J"),
    "group": lambda: BaseExceptionGroup("many", [SystemExit(1), ValueError("x")]),
    "retry_nan": lambda: Retry(after=float("nan")),
    "retry_infinite": lambda: Retry(after=float("inf")),
    "retry_negative": lambda: Retry(after=-5),
    "retry_text": lambda: Retry(after="60"),  # type: ignore[arg-type]
    "retry_timedelta": lambda: Retry(after=timedelta(seconds=1)),
    "snooze_nan": lambda: Snooze(float("nan")),
    "snooze_text": lambda: Snooze("soon"),  # type: ignore[arg-type]
}
for _name, _make in RAISED.items():
    raising(_name, _make)


@nasty
def exit_at_once() -> None:
    os._exit(0)


@nasty
async def exit_at_once_async() -> None:
    os._exit(7)


@nasty
def abort() -> None:
    os.abort()


@nasty
def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@nasty
def kill_its_group() -> None:
    os.killpg(0, signal.SIGKILL)


@nasty
def segfault_with_a_living_child() -> None:
    if not os.fork():
        time.sleep(1_000)
    ctypes.string_at(0)


@nasty
def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@nasty
def fork_and_return() -> int:
    return os.fork()


@nasty
async def fork_and_return_async() -> int:
    return os.fork()


@nasty
def recurse() -> None:
    recurse()


@nasty
def return_a_cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


@nasty
def return_an_object() -> object:
    return object()


@nasty
def return_too_much() -> str:
    return "x" * 10_000_000


@nasty
def return_not_a_number() -> float:
    return float("nan")


@nasty
def return_surrogates() -> str:
    return "\ud800"


@nasty
def return_a_coroutine() -> object:
    async def nothing() -> None: ...

    waiting = nothing()
    waiting.close()
    return waiting


@nasty
def close_standard_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()
    sys.stdin = None


@nasty
def close_every_descriptor() -> None:
    os.closerange(3, 256)


@nasty
def talk_nonsense() -> None:
    functions.write_nonsense()


@nasty
async def talk_nonsense_async() -> None:
    functions.write_nonsense()


SCRIBBLES: dict[str, bytes] = {
    "text": b"progress: 17 %\n" * 300,
    "ones": b"\xff" * 70_000,
    "nothing": bytes(70_000),
    "noise": random.Random(7).randbytes(70_000),
}


def scribble(kind: str) -> None:
    """Into low numbers that are not ours, as a program does that writes to one that it has closed."""
    for number in range(3, 21):
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.lseek(number, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.write(number, SCRIBBLES[kind])


def scribbling(kind: str) -> None:
    def plain() -> None:
        scribble(kind)

    async def awaited() -> None:
        scribble(kind)
        await asyncio.sleep(0)

    plain.__name__, awaited.__name__ = f"scribble_{kind}", f"scribble_{kind}_async"
    nasty(plain)
    nasty(awaited)


for _kind in SCRIBBLES:
    scribbling(_kind)


@nasty
def replace_streams() -> None:
    sys.stdout = sys.stderr = None


@nasty
def leave_for_another_folder() -> None:
    os.chdir("/")


@nasty
def change_the_mask() -> None:
    os.umask(0o777)


@nasty
def change_signal_handlers() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(1)


@nasty
def ignore_interruptions() -> None:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


@nasty
def leave_threads() -> None:
    for _ in range(10):
        threading.Thread(target=time.sleep, args=(1_000,)).start()


@nasty
def leak_descriptors() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), min(soft, 256)))
    while True:
        os.open("/dev/null", os.O_RDONLY)


@nasty
def print_for_ever() -> None:
    while True:
        print("x" * 1_000)


@nasty
def print_nonsense() -> None:
    sys.stdout.write("\ud800\x00\x1b]0;owned\x07")
    sys.stdout.buffer.write(b"\xff\xfe")


@nasty
def import_what_hangs() -> None:
    import tests.worker.hanging  # noqa: F401


@nasty
def import_what_exits() -> None:
    import tests.worker.dying  # noqa: F401


@nasty
async def block_the_loop() -> None:
    time.sleep(1_000)  # noqa: ASYNC251


@nasty
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@nasty
async def stop_the_loop_twice() -> None:
    for _ in range(2):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)


@nasty
async def stop_and_close_the_loop_from_a_thread() -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        while not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            with contextlib.suppress(RuntimeError):
                loop.close()

    threading.Thread(target=end).start()
    await asyncio.sleep(1_000)


@nasty
async def forget_what_the_loop_has_to_do() -> None:
    loop: Any = asyncio.get_running_loop()
    loop._scheduled.clear()
    loop._ready.clear()
    await asyncio.sleep(1_000)


@nasty
async def replace_what_the_loop_uses() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: sys.exit(3))
    loop.set_task_factory(lambda loop, work: None)  # type: ignore[arg-type]
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)


@nasty
async def stop_what_the_loop_hears() -> None:
    for descriptor in range(256):
        asyncio.get_running_loop().remove_reader(descriptor)
    await asyncio.sleep(1_000)


@nasty
async def cancel_every_task() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


@nasty
async def shut_everything_down() -> None:
    """As programs do at their end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.get_running_loop().stop()


@nasty
async def block_the_loop_from_a_task() -> None:
    async def block() -> None:
        time.sleep(1_000)  # noqa: ASYNC251

    await asyncio.gather(asyncio.sleep(0.01), block())


@nasty
async def block_the_loop_from_a_callback() -> None:
    asyncio.get_running_loop().call_soon(time.sleep, 1_000)
    await asyncio.sleep(1_000)


@nasty
async def block_the_loop_and_ignore_interruptions() -> None:
    ignore_interruptions()


@nasty
async def close_every_descriptor_async() -> None:
    os.closerange(3, 256)
    await asyncio.sleep(1_000)


@nasty
async def abort_async() -> None:
    await asyncio.sleep(0.01)
    os.abort()


@nasty
async def die_with_living_threads() -> None:
    leave_threads()
    os.closerange(3, 256)


@nasty
async def close_the_loop() -> None:
    asyncio.get_running_loop().close()


@nasty
async def cancel_itself_from_inside() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(10)


@nasty
async def refuse_to_be_cancelled() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)


@nasty
async def leave_a_task_that_exits() -> None:
    async def leave() -> None:
        sys.exit(5)

    asyncio.get_running_loop().call_soon(asyncio.ensure_future, leave())


@nasty
def progress_of_nonsense() -> None:
    current_job().progress(object())
