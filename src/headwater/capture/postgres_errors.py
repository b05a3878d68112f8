"""What the driver of PostgreSQL raises, as our own errors: whoever follows a source tries again where that helps."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from headwater.errors import SourceBusy, SourceUnfit, SourceUnreachable


@contextmanager
def translated() -> Iterator[None]:
    """Turns the server's errors, and those of the connection to it, into ours."""
    try:
        yield
    except psycopg.errors.ObjectInUse as error:
        raise SourceBusy(f"another process follows the slot: {one_line(error)}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceUnfit(f"the user of the source may not do this: {one_line(error)}") from error
    except psycopg.OperationalError as error:
        raise SourceUnreachable(f"the server of the source cannot be reached: {one_line(error)}") from error
    except psycopg.Error as error:
        raise SourceUnfit(f"the server of the source refused: {one_line(error)}") from error


def one_line(error: psycopg.Error) -> str:
    """What a server says. It says more in further lines: hints, the place in a statement."""
    return " ".join(str(error).split())
