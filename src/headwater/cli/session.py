"""Opening the store for one command, and running the command's coroutine."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.cli.exits import StoreUnopened
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.app import Headwater

Result = TypeVar("Result")


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine to its end. Ctrl-C cancels it, so that the store is closed in good order."""
    return asyncio.run(main)


def run_fast(main: Coroutine[Any, Any, Result]) -> Result:
    """The same on uvloop, for commands that run long enough to win back the time its import takes."""
    import uvloop

    return uvloop.run(main)


@asynccontextmanager
async def opened(
    settings: Settings, *, create: bool = False, housekeeping: bool | None = False
) -> "AsyncIterator[Headwater]":
    """The store of this command, open. Only a command that writes first makes a missing one.

    A short command does no chores; `housekeeping=None` leaves it to the configuration.
    """
    from headwater.app import open_headwater
    from headwater.errors import StoreError, StoreFailed

    config: dict[str, Any] = {} if housekeeping is None else {"housekeeping": housekeeping}
    hw = open_headwater(settings.store, database=settings.database, create=create, **config)
    try:
        await hw.start()
    except StoreError as error:
        if type(error) in (StoreError, StoreFailed):
            raise StoreUnopened(str(error)) from error
        raise
    except OSError as error:
        raise StoreUnopened(f"{settings.store} cannot be opened: {error}") from error
    try:
        yield hw
    finally:
        await hw.close()


def store_location(settings: Settings) -> str:
    """Where the store is or would be, without opening it."""
    from headwater.clock import SystemClock
    from headwater.config import Config
    from headwater.stores.open import open_store

    return open_store(settings.store, Config(), SystemClock(), create=False).traits.location
