"""What the server's errors mean to callers."""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReplaced,
    StoreUnreachable,
)
from headwater.stores.postgres.pipe import ConnectionLost, ServerError

_classes: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreUnreachable, "the server cannot be reached"),
    "28": (StoreFailed, "the server refused the user or the password"),
    "42501": (StoreFailed, "the user may not do this"),
    "3D000": (StoreFailed, "there is no such database"),
    "53100": (StoreFull, "no space is left on the server's disk"),
    "53": (StoreBusy, "the server has no room for this now"),
    "55P03": (StoreBusy, "another process holds the append lock"),
    "40": (StoreBusy, "another transaction was in the way"),
    "57014": (StoreBusy, "the server gave up waiting"),
    "57": (StoreUnreachable, "the server is shutting down or starting up"),
    "58": (StoreFailed, "the server's disk failed"),
    "25006": (StoreFailed, "the server takes no writes"),
    "XX": (StoreDamaged, "the server found its data damaged"),
    "42P01": (StoreReplaced, "the tables of the store are gone"),
    "3F000": (StoreReplaced, "the schema of the store is gone"),
}


def translate(error: ServerError, doing: str) -> StoreError:
    """What a server's error means to callers; `doing` says in the message what was tried."""
    state = error.state
    kind, meaning = _classes.get(state) or _classes.get(state[:2]) or (StoreError, f"SQLSTATE {state}")
    return kind(f"{doing}: {meaning} ({error})")


def unknown_outcome(error: ConnectionLost) -> StoreUnreachable:
    """The connection was lost while a commit was on its way."""
    return StoreUnreachable(
        f"the connection to the server was lost while this was committed ({error}); whether it holds is not known: "
        "the same request with the same idempotency key finds out"
    )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turns the server's errors into ours."""
    try:
        yield
    except ServerError as error:
        raise translate(error, doing) from error
