"""`queue.run(handler)`: a consumer that goes on when a message fails, does several at once, and ends in good order.

Each of its workers has a consumption of its own, so that several partitions are worked on at a time and each partition
in its order. A handler that returns acks its message; one that raises fails it, and the rest of that partition goes
back, so that nothing is done out of order. Asked to stop, workers take no more and finish what they are at.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.errors import HeadwaterError, InvalidOption
from headwater.outage import level_of
from headwater.services.callables import check_no_generator, check_takes_one, is_async, let_be, undone
from headwater.services.checks import check_number
from headwater.services.consumption import Consumption
from headwater.services.error_texts import text_of
from headwater.services.messages import Message
from headwater.services.threads import begin_in_thread

log = logging.getLogger(__name__)

CONCURRENCY_MAX = 1_000
STOP_SECONDS_MAX = 86_400
# After a store or server that did not answer: longer each time.
PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0

# Called with a `Message`, or with that of the sync interface.
Handler = Callable[[Any], object]

Result = TypeVar("Result")


def check_handler(handler: object) -> None:
    """Raises unless this can be called with a message."""
    if not callable(handler):
        raise InvalidOption(f"run takes a function that is called with each message; got {handler!r:.80}")
    check_no_generator("run", handler)
    check_takes_one("run", handler)


def check_concurrency(value: object) -> int:
    if not 1 <= check_number("concurrency", value) <= CONCURRENCY_MAX:
        raise InvalidOption(f"concurrency must be 1 to {CONCURRENCY_MAX:,}; got {value!r:.80}")
    return check_number("concurrency", value)


def check_stop_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= STOP_SECONDS_MAX:
        raise InvalidOption(f"stop_seconds must be 0 to {STOP_SECONDS_MAX:,}; got {value!r:.80}")
    return value


class Run:
    """Workers that call a handler with each message."""

    def __init__(
        self, consume: Callable[[], Consumption], handler: Handler, *, concurrency: int, stop_seconds: float
    ) -> None:
        self._consume = consume
        self._handler = handler
        self._concurrency = concurrency
        self._stop_seconds = stop_seconds
        self._pool: ThreadPoolExecutor | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._asking: set[asyncio.Task[None]] = set()
        self._is_stopping = self._is_aborted = False
        self._caller: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._patience: asyncio.TimerHandle | None = None
        self._escaped: BaseException | None = None

    def stop(self) -> None:
        """Take no more, finish what is worked on. Asked again, or after `stop_seconds`: give that back, too."""
        if self._is_stopping:
            self._abort()
            return
        self._is_stopping = True
        self._patience = asyncio.get_running_loop().call_later(self._stop_seconds, self._abort)
        for task in list(self._asking):
            task.cancel()

    def _abort(self) -> None:
        self._is_stopping = self._is_aborted = True
        for worker in self._workers:
            worker.cancel()

    async def work(self) -> None:
        """Returns when everything that was begun is reported, after `stop` or when nothing came for long enough."""
        self._caller = asyncio.current_task()
        self._cancels_before = self._caller.cancelling() if self._caller is not None else 0
        if not is_async(self._handler):
            self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="headwater-handler")
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        try:
            await asyncio.wait(self._workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # One that failed for good, or a caller that leaves, ends all.
            self._abort()
            if self._patience is not None:
                self._patience.cancel()
            outcomes = await asyncio.gather(*self._workers, return_exceptions=True)
            if self._pool is not None:
                self._pool.shutdown(wait=False)
        for outcome in (self._escaped, *outcomes):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    # ── one worker ──

    async def _work(self) -> None:
        pause = 0.0
        while not self._is_stopping:
            try:
                await self._pause(pause)
                async with self._consume() as messages:
                    while (message := await self._next(messages)) is not None:
                        pause = 0.0
                        await self._handle(message, messages)
                return
            except HeadwaterError as error:
                if not error.retryable:
                    raise
                pause = min(2 * pause or PAUSE_SECONDS, PAUSE_SECONDS_MAX)
                log.log(level_of(error), "run goes on in %g s: %s", pause, error)
            except asyncio.CancelledError:
                if self._is_to_leave():
                    raise
                # A handler kept its task, and cancelled it later. What was taken went back with the block.
                await self._forget_cancels()

    def _is_to_leave(self) -> bool:
        """Whether a cancellation came to the run: from itself, or to the task that called it, where they may all have
        been cancelled at once. Any other is a handler's doing."""
        return self._is_aborted or (self._caller is not None and self._caller.cancelling() > self._cancels_before)

    async def _forget_cancels(self) -> None:
        """Forget cancellations of this worker that were none of the run's, also one that is still to be raised."""
        task = asyncio.current_task()
        if task is None or not task.cancelling() or self._is_to_leave():
            return
        while task.cancelling():
            task.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._is_to_leave():
                raise

    async def _next(self, messages: Consumption) -> Message | None:
        """The next message; None when there is to be none."""
        if self._is_stopping:
            return None
        try:
            return await self._unless_stopped(anext(messages))
        except StopAsyncIteration:
            return None

    async def _pause(self, seconds: float) -> None:
        if seconds:
            await self._unless_stopped(asyncio.sleep(seconds, None))

    async def _unless_stopped(self, waiting: Awaitable[Result]) -> Result | None:
        """What is waited for; None when `stop` came meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self._is_stopping or task.cancelling() > 1:
                raise
            task.uncancel()
            return None
        finally:
            self._asking.discard(task)

    async def _handle(self, message: Message, messages: Consumption) -> None:
        try:
            try:
                await self._call(message)
            finally:
                await self._forget_cancels()
        except Exception as error:
            log.warning("a handler failed with %r: %s", message, text_of(error), exc_info=error)
            await messages.fail_current(error)
        except asyncio.CancelledError as error:
            if self._is_to_leave():
                raise
            # Nobody cancelled the run: it is an exception of the handler's own.
            await messages.fail_current(error)
        except BaseException as error:
            # The handler asks the whole program to end. Raised here it would end the event loop around everybody.
            await messages.release_current()
            self._escaped = error
            self._abort()

    async def _call(self, message: Message) -> None:
        if self._pool is None:
            await _finish(await self._handler(message))  # type: ignore[misc]
            return
        thread = begin_in_thread(self._pool, self._handler, message)
        try:
            outcome = await asyncio.shield(thread)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Its message is reported when it is done, or two would work on it at once.
            await _outlast(thread)
            result = thread.result().get()
            if inspect.isawaitable(result):
                let_be(result)
            else:
                await _finish(result)
                await _ack_late(message)
            raise
        await _finish(outcome.get())


async def _finish(result: object) -> None:
    """What a handler returned may be work that is still to be done: await it, or raise if nobody can."""
    if result is None:
        return
    while inspect.isawaitable(result):
        result = await result
    if mistake := undone(result):
        raise InvalidOption(mistake)


async def _ack_late(message: Message) -> None:
    """It was done by a thread that nobody waited for any more. Where the store was closed under it, it went back."""
    try:
        await message.ack()
    except HeadwaterError as error:
        log.warning("%r was handled, but could not be acked, and comes again: %s", message, error)


async def _outlast(thread: "asyncio.Future[Any]") -> None:
    """Until the thread is done, however often the one who waits is told to leave."""
    while not thread.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([thread])
