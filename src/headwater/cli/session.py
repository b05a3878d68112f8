"""Opening the store, or reaching the server, for one command, and running the command's coroutine."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.cli.exits import Misuse, StoreUnopened
from headwater.cli.output import note
from headwater.cli.settings import SERVER_VARIABLE, STORE_VARIABLE, TOKEN_VARIABLE, Settings

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client

# Somebody sits in front of it: a server that is away is told sooner than a program would want it.
RETRY_SECONDS = 5.0

Result = TypeVar("Result")


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine to its end. Ctrl-C cancels it, so that the store is closed in good order."""
    return asyncio.run(main)


def run_fast(main: Coroutine[Any, Any, Result]) -> Result:
    """The same on uvloop, for commands that run long enough to win back the time its import takes."""
    import uvloop

    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        return uvloop.run(main)
    finally:
        # A closed uvloop leaves its own handlers behind: Ctrl-C would do nothing from here on.
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@asynccontextmanager
async def opened(
    settings: Settings, *, create: bool = False, housekeeping: bool | None = False
) -> "AsyncIterator[Headwater]":
    """The store of this command, open. Only a command that writes first makes a missing one.

    A short command does no chores; `housekeeping=None` leaves it to the configuration.
    """
    check_store_is_meant(settings)
    hw = make_headwater(settings, create=create, housekeeping=housekeeping)
    await start(hw, settings)
    try:
        yield hw
    finally:
        await hw.close()


def check_store_is_meant(settings: Settings) -> None:
    """Raises when a command that needs a store would take the one of the default name, because only a server is named:
    an empty store beside it would look as if there were nothing to do."""
    if settings.server and not os.environ.get(STORE_VARIABLE):
        raise Misuse(
            f"this command works on a store, and {SERVER_VARIABLE} names a server ({settings.server}): "
            f"name the store, with --store or {STORE_VARIABLE}, where that is"
        )


def make_headwater(settings: Settings, *, create: bool = False, housekeeping: bool | None = False) -> "Headwater":
    """The store of this command, not yet open."""
    from headwater.app import open_headwater

    config: dict[str, Any] = {} if housekeeping is None else {"housekeeping": housekeeping}
    return open_headwater(settings.store, database=settings.database, adopt=settings.adopt, create=create, **config)


async def start(hw: "Headwater", settings: Settings) -> None:
    """Open it; what cannot be opened is told by its name."""
    from headwater.errors import StoreError, StoreFailed, StoreUnreachable

    try:
        await hw.start()
    except StoreError as error:
        if type(error) in (StoreError, StoreFailed, StoreUnreachable):
            raise StoreUnopened(str(error)) from error
        raise
    except OSError as error:
        raise StoreUnopened(f"{settings.store} cannot be opened: {error}") from error


@asynccontextmanager
async def reached(
    settings: Settings, *, create: bool = False, housekeeping: bool | None = False, or_empty: bool = False
) -> "AsyncIterator[Headwater | Client]":
    """The server of this command, or else its store, open: both have the same verbs.

    With `or_empty`, a store that nobody has made yet looks like one that nothing is in, and is still not made.
    """
    if not settings.server:
        if or_empty and _is_missing(settings.store):
            async with _empty(settings) as hw:
                yield hw
            return
        async with opened(settings, create=create, housekeeping=housekeeping) as hw:
            yield hw
        return
    from headwater.app import connect

    async with connect(settings.server, token=_token(settings), retry_seconds=RETRY_SECONDS) as client:
        yield client


def _is_missing(store: str) -> bool:
    return "://" not in store and not os.path.exists(store)


@asynccontextmanager
async def _empty(settings: Settings) -> "AsyncIterator[Headwater]":
    note(f"there is no store at {settings.store} yet")
    with TemporaryDirectory(prefix="headwater-") as folder:
        async with opened(settings._replace(store=f"{folder}/empty.db"), create=True) as hw:
            yield hw


def _token(settings: Settings) -> str:
    """The token for the server: from a file or a variable, never from the command line, which others can read."""
    if not settings.token_file:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        return Path(settings.token_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"--token-file: {settings.token_file} cannot be read: {_reason(error)}") from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """What is wrong with a file, without what is in it."""
    return (error.strerror or "") if isinstance(error, OSError) else "it is no plain text"


def store_location(settings: Settings) -> str:
    """Where the store is or would be, without opening it."""
    from headwater.clock import SystemClock
    from headwater.config import Config
    from headwater.stores.open import open_store

    return open_store(settings.store, Config(), SystemClock(), create=False).traits.location


@contextmanager
def told_to_end(told: list[signal.Signals]) -> Iterator[None]:
    """SIGTERM, which is how a service is ended, ends it as Ctrl-C does: with what is under way finished."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(task: "asyncio.Task[object]") -> None:
        told.append(signal.SIGTERM)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end, task)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
