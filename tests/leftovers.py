"""What a test may leave behind in its process for the tests after it: nothing.

Which tests share a process depends on how many processes there are and on which of them was quicker. So whatever a test
leaves (a signal handler, another folder, a process that still runs) makes a test fail that is far from the cause, on
some days only. `tests/conftest.py` looks at the process before and after each test, fails the test that left something
and puts back what can be put back, so that one such test makes one red line.

What a fixture of a wider scope makes is there before the first look, and belongs to no test. The two looks take about a
quarter of a millisecond together: what needs longer is done only when something differs.
"""

import asyncio
import ctypes
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time

# The public one makes an enum of each answer, sixty times a look.
from _signal import getsignal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

import headwater

# How long something may take to be gone by itself: a thread that is ending, the other end of a closed connection.
SETTLE_SECONDS = 10.0
PAUSE_SECONDS = 0.005

# The alarm is pytest-timeout's, which takes it away early when a test fails.
SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGALRM}))
LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_AS,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_CORE,
)
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
# Of what Linux tells of a process: which signals are blocked, ignored and caught, by C too, and the umask, which cannot
# be asked for otherwise without setting it.
STATUS_LINES = (b"Umask", b"SigBlk", b"SigIgn", b"SigCgt")
# Beside the alarm, two signals are the C library's own, for its threads; it sets handlers when it first needs them.
OWN_SIGNALS = 0b11 << 31 | 1 << (signal.SIGALRM - 1)
# A planted bug is in a copy of the source, in the folder for temporary files: that copy is no test's own either, and
# what a test imports of it first is no fault that the test has noticed.
SOURCE = Path(headwater.__file__).parents[1]
CHECKOUT = Path(__file__).parents[1]
KEPT_FOLDERS = tuple(str(folder) + os.sep for folder in (CHECKOUT, SOURCE, sys.prefix, sys.base_prefix))
# Set by pytest, for each phase anew.
OWN_VARIABLES = (b"PYTEST_CURRENT_TEST",)


def make_what_is_made_once() -> None:
    """Before the first look: what a library keeps from its first use on, which is the pipe of uvloop's signals."""
    uvloop.new_event_loop().close()


class Trait(NamedTuple):
    """One thing that tests of a process share."""

    look: Callable[[], Any]
    # What of the second look is a leftover, given the first; empty when nothing is.
    compare: Callable[[Any, Any], str]
    put_back: Callable[[Any], object] = lambda before: None


def changed(before: object, after: object) -> str:
    """For what must be the same."""
    return "" if before == after else f"was {before!r}, is {after!r}"


def changed_entries(before: dict[Any, Any], after: dict[Any, Any]) -> str:
    """For what must be the same under each name."""
    if before == after:
        return ""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name!r} was {before.get(name)!r}, is {after.get(name)!r}" for name in names)


# The signals.


def signal_handlers() -> list[object]:
    return [getsignal(number) for number in SIGNALS]


def compare_handlers(before: list[object], after: list[object]) -> str:
    if before == after:
        return ""
    return changed_entries(dict(zip(SIGNALS, before, strict=True)), dict(zip(SIGNALS, after, strict=True)))


def put_handlers_back(before: list[Any]) -> None:
    for number, handler in zip(SIGNALS, before, strict=True):
        if handler is not None and getsignal(number) is not handler:
            signal.signal(number, handler)


def wakeup_descriptor() -> int:
    """Where Python writes which signal came; it can be asked for only by setting it."""
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        signal.set_wakeup_fd(descriptor)
    return descriptor


# The process.


def kernel_status() -> list[bytes]:
    if sys.platform != "linux":
        return []
    descriptor = os.open("/proc/self/status", os.O_RDONLY)
    try:
        text = os.read(descriptor, 8_192)
    finally:
        os.close(descriptor)
    return [line for line in text.splitlines() if line.startswith(STATUS_LINES)]


def compare_status(before: list[bytes], after: list[bytes]) -> str:
    if before == after:
        return ""
    return changed_entries(dict(map(read_status_line, before)), dict(map(read_status_line, after)))


def read_status_line(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode().partition(":")
    number = int(value, 8) if name == "Umask" else int(value, 16) & ~OWN_SIGNALS
    return name, f"{number:o}" if name == "Umask" else f"{number:x}"


def put_umask_back(before: list[bytes]) -> None:
    for name, value in map(read_status_line, before):
        if name == "Umask":
            os.umask(int(value, 8))


def environment() -> dict[bytes, bytes]:
    """As the system has it: decoding it takes longer than all the rest."""
    values = dict(vars(os.environ)["_data"])
    for name in OWN_VARIABLES:
        values.pop(name, None)
    return values


def put_environment_back(before: dict[bytes, bytes]) -> None:
    after = environment()
    for name in after.keys() - before.keys():
        os.environb.pop(name, None)
    os.environb.update(before)


def limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in LIMITS]


def put_limits_back(before: list[tuple[int, int]]) -> None:
    for limit, values in zip(LIMITS, before, strict=True):
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)


@cache
def c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def adopts_orphans() -> bool:
    """Whether the children of its dead children become its own."""
    if sys.platform != "linux":
        return False
    flag = ctypes.c_int()
    c_library().prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0)
    return bool(flag.value)


def put_adoption_back(before: bool) -> None:
    c_library().prctl(PR_SET_CHILD_SUBREAPER, int(before), 0, 0, 0)


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def current_locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def put_locale_back(before: str) -> None:
    locale.setlocale(locale.LC_ALL, before)


def time_zone() -> tuple[str, str]:
    return time.tzname


def put_time_zone_back(before: tuple[str, str]) -> None:
    """From the environment, which is as it was by now."""
    time.tzset()


# What it holds and has begun.


def descriptors() -> set[str]:
    """The one that lists them is among them, and gone with the answer."""
    return set(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))


def new_descriptors(before: set[str], after: set[str]) -> str:
    return ", ".join(filter(None, map(describe_descriptor, sorted(after - before))))


def describe_descriptor(number: str) -> str:
    """Empty for one that is closed."""
    try:
        target = os.readlink(f"/proc/self/fd/{number}") if sys.platform == "linux" else "open"
    except FileNotFoundError:
        return ""
    return f"{number} ({target})"


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def new_threads(before: set[threading.Thread], after: set[threading.Thread]) -> str:
    return ", ".join(thread.name for thread in after - before if thread.is_alive())


def children() -> set[str]:
    """The processes that are its own, also ended ones that nobody waited for. Mostly none: one quick question."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    if sys.platform != "linux":
        return {"some"}
    return set(list_children())


def list_children() -> Iterator[str]:
    for thread in Path("/proc/self/task").iterdir():
        try:
            yield from (thread / "children").read_text().split()
        except FileNotFoundError:
            # The thread has ended since; its children are now another's.
            continue


def new_children(before: set[str], after: set[str]) -> str:
    return ", ".join(map(describe_child, sorted(after - before)))


def describe_child(number: str) -> str:
    try:
        command = Path("/proc", number, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    return f"{number} ({command[:200] or 'ended, and not waited for'})"


# Python's own.


def hooks() -> list[object]:
    return [sys.excepthook, threading.excepthook, sys.stdin, sys.getrecursionlimit(), sys.getswitchinterval()]


def collector() -> list[object]:
    return [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()]


def import_path() -> list[object]:
    return [*sys.path, *sys.meta_path, *sys.path_hooks]


def put_path_back(before: list[Any]) -> None:
    sys.path[:] = [part for part in before if isinstance(part, str)]


def modules() -> dict[str, object]:
    return dict(sys.modules)


def strange_modules(before: dict[str, object], after: dict[str, object]) -> str:
    """Those that are gone or became others, and new ones from a test's own folder, which hide the next test's."""
    if list(before.values()) == list(after.values()):
        return ""
    gone = [name for name, module in before.items() if after.get(name) is not module]
    own = [name for name, module in after.items() if name not in before and is_temporary(module)]
    return ", ".join([*gone, *own])


def is_temporary(module: object) -> bool:
    """Whether it comes from a folder that a test made, and not from a checkout or a Python that is kept there."""
    file = str(getattr(module, "__file__", None) or "")
    return file.startswith(tempfile.gettempdir() + os.sep) and not file.startswith(KEPT_FOLDERS)


def put_modules_back(before: dict[str, Any]) -> None:
    for name in [name for name, module in sys.modules.items() if name not in before and is_temporary(module)]:
        del sys.modules[name]
    sys.modules.update(before)


def loggers() -> dict[str, object]:
    """Those of Headwater and the one above all."""
    known = logging.root.manager.loggerDict
    own = (known[name] for name in list(known) if name.startswith("headwater"))
    found = [logging.root, *(logger for logger in own if isinstance(logger, logging.Logger))]
    state: dict[str, object] = {
        logger.name: (logger.level, logger.disabled, logger.propagate, *logger.handlers, *logger.filters)
        for logger in found
    }
    state["disabled up to"] = logging.root.manager.disable
    return state


UNTOUCHED_LOGGER = (logging.NOTSET, False, True)


def changed_loggers(before: dict[str, object], after: dict[str, object]) -> str:
    """A logger that was made meanwhile, and not changed, is none."""
    if before == after:
        return ""
    return changed_entries({name: before.get(name, UNTOUCHED_LOGGER) for name in after}, after)


def put_loggers_back(before: dict[str, Any]) -> None:
    logging.disable(before["disabled up to"])
    for name in loggers():
        if name != "disabled up to":
            logger = logging.getLogger(None if name == "root" else name)
            level, logger.disabled, logger.propagate, *rest = before.get(name, UNTOUCHED_LOGGER)
            logger.setLevel(level)
            logger.handlers[:] = [handler for handler in rest if isinstance(handler, logging.Handler)]
            logger.filters[:] = [each for each in rest if not isinstance(each, logging.Handler)]


def loop_policy() -> object:
    """Asked for where asking makes none and warns about none."""
    return vars(asyncio.events).get("_event_loop_policy")


def same_policy(before: object, after: object) -> str:
    """The first to ask makes the usual one."""
    usual = before is None and type(after).__module__.startswith("asyncio")
    return "" if before is after or usual else f"was {before!r}, is {after!r}"


def spark() -> list[object]:
    """Which context and session a program has now; none where nobody imported Spark."""
    core, sql = sys.modules.get("pyspark.core.context"), sys.modules.get("pyspark.sql.session")
    return [
        getattr(getattr(core, "SparkContext", None), "_active_spark_context", None),
        getattr(getattr(sql, "SparkSession", None), "_instantiatedSession", None),
    ]


TRAITS = {
    "signal handlers": Trait(signal_handlers, compare_handlers, put_handlers_back),
    "signal wake-up descriptor": Trait(wakeup_descriptor, changed, signal.set_wakeup_fd),
    "umask and signals": Trait(kernel_status, compare_status, put_umask_back),
    "environment": Trait(environment, changed_entries, put_environment_back),
    "resource limits": Trait(limits, changed, put_limits_back),
    "folder": Trait(os.getcwd, changed, os.chdir),
    "adoption of orphans": Trait(adopts_orphans, changed, put_adoption_back),
    "priority": Trait(priority, changed),
    "locale": Trait(current_locale, changed, put_locale_back),
    "time zone": Trait(time_zone, changed, put_time_zone_back),
    "socket timeout": Trait(socket.getdefaulttimeout, changed, socket.setdefaulttimeout),
    "hooks": Trait(hooks, changed),
    "garbage collector": Trait(collector, changed),
    "import path": Trait(import_path, changed, put_path_back),
    "modules": Trait(modules, strange_modules, put_modules_back),
    "loggers": Trait(loggers, changed_loggers, put_loggers_back),
    "event loop policy": Trait(loop_policy, same_policy),
    "Spark": Trait(spark, changed),
    "threads": Trait(threads, new_threads),
    "child processes": Trait(children, new_children),
    "open descriptors": Trait(descriptors, new_descriptors),
}


# What a server that several tests share begins when it first needs it: whose it is cannot be told.
OF_SHARED = ("threads", "open descriptors")
# What may go by itself in a while.
SETTLING = ("threads", "child processes", "open descriptors")


class Snapshot:
    """What the process looked like."""

    def __init__(self, *, shares: bool = False) -> None:
        """`shares` says that a thing which outlives the test works in this process, too."""
        names = [name for name in TRAITS if not (shares and name in OF_SHARED)]
        self._before = {name: TRAITS[name].look() for name in names}

    def leftovers(self) -> dict[str, str]:
        """What is there now that was not, or is not as it was: its kind, and what it is."""
        found = self._find(self._before)
        return self._settled(found) if found else found

    def put_back(self, names: Iterable[str]) -> None:
        """Make it again as it was, where that can be done from here."""
        for name in names:
            TRAITS[name].put_back(self._before[name])

    def _find(self, names: Iterable[str]) -> dict[str, str]:
        return {name: what for name in names if (what := TRAITS[name].compare(self._before[name], TRAITS[name].look()))}

    def _settled(self, found: dict[str, str]) -> dict[str, str]:
        """What is still there after a while. Cycles of garbage may hold what nobody uses any more."""
        gc.collect()
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := self._find(found)) and found.keys() & set(SETTLING) and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
        return found
