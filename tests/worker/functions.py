"""Functions that the tests run as jobs."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path

from headwater.jobs import Cancel, Interrupted, JobApp, Retry, Snooze, current_job
from headwater.worker.runner_process import LATE_SECONDS

app = JobApp()


@dataclass
class Order:
    """Something with a type."""

    id: int
    tags: list[str]


@app.job
def add(left: int, right: int = 1) -> int:
    return left + right


@app.job
async def add_later(left: int, right: int = 1) -> int:
    await asyncio.sleep(0)
    return left + right


@app.job
def describe_all(first: Order, *orders: Order, **named: Order) -> list[str]:
    return [f"{order.id}: {', '.join(order.tags)}" for order in (first, *orders, *named.values())]


class Size(Enum):
    """With values of several kinds."""

    SMALL = 1
    LARGE = "l"


@app.job
def describe_keys(names: dict[int, str], days: list[dict[date, float]], size: Size = Size.SMALL) -> list[str]:
    return [repr(names), repr([{day.day: value for day, value in one.items()} for one in days]), size.name]


@app.job
def describe(order: Order) -> str:
    return f"{order.id}: {', '.join(order.tags)}"


@app.job(retries=1, backoff_base=1.0, backoff_jitter=0.0)
def fail() -> None:
    raise ValueError("this went wrong")


@app.job(give_up_for=(KeyError,))
def give_up() -> None:
    raise KeyError("no use")


@app.job(retries=2)
def retry_at_once(file: str) -> int:
    with Path(file).open("a") as marks:
        marks.write("x")
    if len(Path(file).read_text()) < 3:
        raise Retry(after=0.0)
    return current_job().attempt


@app.job(retries=0)
def snooze_twice() -> int:
    if current_job().token < 3:
        raise Snooze(0.01)
    return current_job().attempt


@app.job
def cancel_itself() -> None:
    raise Cancel("nobody needs it")


@app.job(retries=0, timeout=0.2)
def hang() -> None:
    time.sleep(60)


@app.job(retries=0, timeout=0.2)
async def hang_politely() -> None:
    await asyncio.sleep(60)


@app.job(retries=0, timeout=0.2)
async def hang_rudely() -> None:
    time.sleep(60)  # noqa: ASYNC251


@app.job(retries=0)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def wait_for_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)


@app.job
async def meet(folder: str, count: int) -> int:
    """Returns once as many as `count` run at the same time."""
    (Path(folder) / current_job().id).touch()
    while (met := len(list(Path(folder).iterdir()))) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return met


@app.job
def tell_deep(told: int, returned: int) -> object:
    current_job().progress(nest(told))
    return nest(returned)


def nest(levels: int) -> object:
    """So many lists in each other."""
    value: object = 7
    for _ in range(levels):
        value = [value]
    return value


@app.job
def tell_long(size: int) -> str:
    try:
        current_job().progress("x" * size)
    except ValueError as error:
        return str(error)
    return "told"


@app.job
def tell_progress(path: str) -> None:
    current_job().progress({"percent": 50})
    while not os.path.exists(path):
        time.sleep(0.005)


@app.job
def sum_results() -> int:
    return sum(current_job().results.values())


@app.job
def return_nonsense() -> object:
    return object()


@app.job
def return_some() -> str:
    return "x" * 200_000


@app.job
def return_much() -> str:
    return "x" * 2_000_000


@app.job
def shout(text: str) -> str:
    return text.upper()


def plain(text: str) -> str:
    """No job, but a function that can be imported."""
    return text.upper()


@app.job(retries=0)
def note_start(file: str) -> int:
    """Leaves a line for every time that it is started."""
    job = current_job()
    with Path(file).open("a") as marks:
        marks.write(f"{job.id} {job.token} {job.attempt}\n")
    return os.getpid()


@app.job(retries=0, timeout=0.3)
def clean_up(file: str) -> None:
    try:
        time.sleep(60)
    except Interrupted:
        Path(file).write_text("cleaned")
        raise


@app.job(retries=0)
def clean_up_slowly(file: str) -> None:
    try:
        Path(file).touch()
        time.sleep(60)
    finally:
        time.sleep(60)


@app.job(retries=0)
async def wait_for_file_politely(path: str) -> int:
    while not os.path.exists(path):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return current_job().attempt


@app.job(retries=0)
def print_and_log(gate: str) -> None:
    print("printed")
    sys.stderr.write("to standard error\n")
    current_job().log.info("logged")
    while gate and not os.path.exists(gate):
        time.sleep(0.005)
    print("after the gate")


@app.job(retries=0)
async def print_politely(text: str) -> None:
    for _ in range(3):
        print(text)
        await asyncio.sleep(0.001)


@app.job(retries=0)
def print_and_die() -> None:
    print("last words")
    os.abort()


@app.job
def progress_to_the_end() -> None:
    for percent in range(101):
        current_job().progress(percent)


def write_nonsense() -> None:
    """Into whatever this process holds open, but not into files: the pipes to its worker are among it."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(int(name)).st_mode) and int(name) > 2:
                os.write(int(name), b"\x06\0\0\0\x92\x01\xa2\xff\xfe\0")


@app.job(retries=0)
def talk_nonsense(gate: str = "") -> int:
    write_nonsense()
    while gate and not os.path.exists(gate):
        time.sleep(0.005)
    return os.getpid()


@app.job(retries=0)
async def talk_nonsense_politely(gate: str = "") -> int:
    write_nonsense()
    while gate and not os.path.exists(gate):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return os.getpid()


@app.job(retries=0)
def name_descriptors() -> list[str]:
    """What this process holds open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


@app.job(retries=0)
def tell_process_plainly() -> int:
    return os.getpid()


@app.job(retries=0)
async def tell_process() -> int:
    return os.getpid()


@app.job(retries=3)
async def wait_and_tell(folder: str) -> int:
    """Leaves a file for each start, and waits for the file `gate`."""
    job = current_job()
    (Path(folder) / f"begun-{job.id}-{job.token}").touch()
    while not os.path.exists(f"{folder}/gate"):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return os.getpid()


@app.job(retries=0)
async def hold_the_loop(stubborn: bool) -> None:
    while stubborn:
        with contextlib.suppress(BaseException):
            time.sleep(1_000)  # noqa: ASYNC251
    time.sleep(1_000)  # noqa: ASYNC251


@app.job(retries=0)
async def die_politely() -> None:
    os._exit(3)


def end_when(path: str) -> None:
    wait_for_file.function(path)
    os._exit(5)


@app.job
async def leave_a_thread(path: str) -> None:
    """Returns; what it leaves behind ends the process when there is such a file."""
    threading.Thread(target=end_when, args=[path], daemon=True).start()


@app.job
def leave_a_thread_plainly(path: str) -> None:
    threading.Thread(target=end_when, args=[path], daemon=True).start()


@app.job
async def leave_a_callback(path: str) -> None:
    loop = asyncio.get_running_loop()

    def look() -> None:
        if os.path.exists(path):
            os._exit(5)
        loop.call_later(0.005, look)

    look()


@app.job
async def leave_a_task(path: str) -> None:
    async def look() -> None:
        while not os.path.exists(path):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        os._exit(5)

    kept.append(asyncio.create_task(look()))


kept: list[asyncio.Task[None]] = []


@app.job(retries=2, backoff_base=1, backoff_max=1)
async def outlast(folder: str) -> int:
    """Leaves a file for each start, and ends when it is started for the second time. The file is made between steps of
    it, so that nobody takes it for the one that ends the process then."""
    job = current_job()
    asyncio.get_running_loop().call_soon((Path(folder) / f"begun-{job.id}-{job.token}").touch)
    await asyncio.sleep(0 if job.token > 1 else 1_000)
    return job.attempt


@app.job(retries=2, backoff_base=1, backoff_max=1)
def outlast_plainly(folder: str) -> int:
    job = current_job()
    (Path(folder) / f"begun-{job.id}-{job.token}").touch()
    time.sleep(0 if job.token > 1 else 1_000)
    return job.attempt


@app.job(retries=2, backoff_base=1, backoff_max=1)
async def offend(path: str) -> None:
    """Ends its process at each start; from the second one on, when there is such a file."""
    while current_job().attempt > 1 and not os.path.exists(path):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    os._exit(6)


@app.job(retries=2, backoff_base=1, backoff_max=1)
async def close_all_descriptors() -> None:
    """Those of the process that are not its own too: nobody knows afterwards which call it was."""
    os.closerange(3, 65_536)
    await asyncio.sleep(0.1)


@app.job(retries=2, backoff_base=1, backoff_max=1)
async def end_from_a_thread() -> None:
    threading.Timer(0.1, os._exit, [4]).start()
    await asyncio.sleep(60)


@app.job(retries=2, backoff_base=1, backoff_max=1)
async def end_from_a_callback() -> None:
    asyncio.get_running_loop().call_later(0.1, os._exit, 5)
    await asyncio.sleep(60)


@app.job(retries=0)
async def close_low_descriptors() -> int:
    """As a program does that means to leave none behind."""
    os.closerange(3, 20)
    await asyncio.sleep(0.1)
    return os.getpid()


@app.job(retries=1, backoff_base=1, backoff_max=1)
async def nap() -> int:
    await asyncio.sleep(0.2)
    return os.getpid()


@app.job(retries=0)
async def empty_the_loop(folder: str) -> None:
    """Nothing will ever happen in it again."""
    (Path(folder) / "begun-last").touch()
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    for key in list(selector.get_map().values()):
        selector.unregister(key.fileobj)
    asyncio.get_running_loop()._scheduled.clear()  # type: ignore[attr-defined]
    asyncio.get_running_loop()._ready.clear()  # type: ignore[attr-defined]
    await asyncio.Future()


@app.job(retries=0)
async def block_until(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)  # noqa: ASYNC251


@app.job(retries=3)
def divide_by_nothing(number: str) -> list[float]:
    return [1.0, float(number)]


@app.job(retries=0)
async def cancel_the_others() -> int:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    return len(others)


@app.job(retries=0)
async def clean_up_stubbornly(file: str) -> None:
    """Cleans up for longer than a call may go on that nobody has told to end."""
    try:
        await asyncio.sleep(1_000)
    finally:
        time.sleep(2 * LATE_SECONDS)  # noqa: ASYNC251
        Path(file).write_text("to the end")


@app.job(retries=0)
def print_in_threads(text: str) -> None:
    """Print in a thread, and in one that this one starts."""

    def deeper() -> None:
        print(f"{text}, deeper")

    def inside() -> None:
        print(f"{text}, in a thread")
        below = threading.Thread(target=deeper)
        below.start()
        below.join()

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    print(f"{text}, at the end")


@app.job(retries=0)
def spoil_input(how: str) -> int:
    """Answers which process it was."""
    if how == "stdin":
        sys.stdin.close()
    elif how == "pipe":
        reading, _ = os.pipe()
        os.dup2(reading, 0)
    else:
        os.close(int(how))
    return os.getpid()


@app.job(retries=0, timeout=5)
def read_input() -> tuple[int, str, int, int]:
    """What standard input has, what a program finds there and can say, and which number a new file gets."""
    found = sys.stdin.read()
    status = os.waitstatus_to_exitcode(os.system("cat && echo said && echo told >&2"))
    opened = os.open("/dev/null", os.O_RDONLY)
    os.close(opened)
    return os.getpid(), found, status, opened
