"""How a command ends: the exit codes, and which error means which."""

from enum import IntEnum
from typing import ClassVar

from headwater.errors import (
    ConfigError,
    FlowError,
    HeadwaterError,
    InvalidInput,
    InvalidName,
    InvalidOption,
    QueueMissing,
    ServerUnreachable,
    ServerUnreadable,
    StoreDamaged,
    StoreFailed,
    StoreForeign,
    StoreLinked,
    StoreMissing,
    StoreNewer,
    StoreOlder,
    StoreReplaced,
)


class ExitCode(IntEnum):
    """What scripts can rely on; `docs/cli.md` has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STORE = 3
    NOTHING = 4
    PROBLEMS = 5
    QUARANTINED = 6
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class Misuse(ConfigError):
    """The command line makes no sense as it stands; nothing was tried."""

    code: ClassVar[str] = "usage"


class InvalidJob(InvalidInput):
    """A job that is to be enqueued is wrong, in whichever way: wrong usage, one exit code for scripts."""

    def __init__(self, error: HeadwaterError) -> None:
        super().__init__(str(error))
        self.code = error.code  # type: ignore[misc]


class LetterMissing(QueueMissing):
    """There is no dead letter of this id."""


class MatchersDiverge(FlowError):
    """A matcher answers otherwise than it should, or takes too long to: it is not to be rolled out."""

    code: ClassVar[str] = "matchers_diverge"


class StoreUnopened(StoreFailed):
    """The store is there and cannot be opened: no right to, no room for a watch, a broken disk."""


CODES: dict[type[HeadwaterError], ExitCode] = {
    StoreMissing: ExitCode.STORE,
    StoreDamaged: ExitCode.STORE,
    StoreForeign: ExitCode.STORE,
    StoreLinked: ExitCode.STORE,
    StoreNewer: ExitCode.STORE,
    StoreOlder: ExitCode.STORE,
    StoreReplaced: ExitCode.STORE,
    StoreUnopened: ExitCode.STORE,
    ServerUnreachable: ExitCode.STORE,
    ServerUnreadable: ExitCode.STORE,
    ConfigError: ExitCode.USAGE,
    InvalidName: ExitCode.USAGE,
    InvalidOption: ExitCode.USAGE,
    InvalidJob: ExitCode.USAGE,
    LetterMissing: ExitCode.NOTHING,
    MatchersDiverge: ExitCode.PROBLEMS,
}


def exit_code_of(error: HeadwaterError) -> ExitCode:
    """The exit code for an error of the library."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), ExitCode.FAILED)
