"""Operations on their way through the committer: who waits for each, and what travels to stable storage together."""

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Generic

import msgspec

from headwater.config import Durability
from headwater.errors import HeadwaterError, StoreFailed, StoreFull, StoreSilent
from headwater.log.operations import Commit, Operation, Pushed, Result

log = logging.getLogger(__name__)


class CommittedResult(msgspec.Struct, Generic[Result], frozen=True, gc=False):
    """What an operation came to, and how safe that is. In memory there is no result yet."""

    result: Result
    durability: Durability


# Of a push, which alone may be answered from memory.
CommittedPush = CommittedResult[Pushed | None]


class Submission(msgspec.Struct, eq=False):
    """An operation on its way."""

    operation: Operation
    durability: Durability
    answer: asyncio.Future[CommittedResult]
    # Handed in together with the one before: both go into one commit.
    is_joined: bool = False
    result: object = None

    def settle(self, durability: Durability) -> bool:
        """Give the caller the answer; False when the caller has left, or was told before that nobody knows."""
        answer, result = self.answer, self.result
        if answer.done():
            self._tell_late(result)
            return not answer.cancelled() and answer.exception() is None
        if isinstance(result, HeadwaterError):
            answer.set_exception(result)
        else:
            answer.set_result(CommittedResult(result, durability))
        return True

    def fail(self, error: BaseException) -> None:
        """Give the caller an error."""
        if self.answer.done():
            self._tell_late(error)
        else:
            self.answer.set_exception(error)

    def _tell_late(self, result: object) -> None:
        """An operation that was answered from memory came to nothing: that is said at least in the log."""
        if self.durability is Durability.MEMORY and isinstance(result, BaseException):
            log.warning("%s was answered from memory, then refused: %s", type(self.operation).__name__, result)


class Flight(msgspec.Struct, eq=False):
    """Submissions on the way to stable storage, and commits that the tail hears of once they are there."""

    submissions: list[Submission]
    commits: list[Commit]
    done: asyncio.Future[None]
    # When it was sent to stable storage; None when it only waits until the store is known to be ours.
    sync_begun: float | None

    def is_overdue(self, seconds: float) -> bool:
        """Whether it is on its way to stable storage for so long."""
        return self.sync_begun is not None and perf_counter() - self.sync_begun >= seconds

    @staticmethod
    def failed(error: Exception) -> "asyncio.Future[None]":
        """The way of one that did not even begin: it is told in its turn, like the others."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(error)
        return done


def tell_waiting(submissions: Sequence[Submission], error: HeadwaterError) -> None:
    """Give those callers an error who have no answer yet; what they asked for stays on its way."""
    for submission in submissions:
        if not submission.answer.done():
            submission.answer.set_exception(error)


def nobody_knows(error: StoreFull | StoreSilent) -> StoreFailed:
    """What is told of something that was sent, and has not landed."""
    return StoreFailed(f"this has not landed yet, and may never: whether it holds is not known ({error})")
