"""What comes one after the other and never ends by itself: messages of a room, changes of documents."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """For `async for`, and for `anext` under a timeout: a wait that is cancelled leaves what it waited for to the next.

    >>> async with hw.collection("tasks").follow() as changes:
    ...     async with asyncio.timeout(5):
    ...         change = await anext(changes)

    A generator would be over once its wait is cancelled, and the loop around it would end as if nothing more came.
    What ended a stream is raised to everybody who asks for more.
    """

    def __init__(self, steps: AsyncGenerator[Sequence[T], None]) -> None:
        self._steps = steps
        self._ready: deque[T] = deque()
        self._step: asyncio.Future[Sequence[T]] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            step = self._step
            if step is None:
                step = self._step = asyncio.ensure_future(anext(self._steps))
                step.add_done_callback(_take_note)
            await asyncio.wait((step,))
            if step.cancelled():
                # Closed by somebody else meanwhile: nobody has cancelled who waits here.
                raise StopAsyncIteration
            if self._step is step:
                self._ready.extend(step.result())
                self._step = None
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Follow no more."""
        self._ready.clear()
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait((self._step,))
            self._step = None
        await self._steps.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # Forgotten while a step is under way: it would follow for as long as the store is open.
        if self._step is not None and not self._step.done():
            loop = self._step.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._step.cancel)


def _take_note(step: "asyncio.Future[Sequence[T]]") -> None:
    """What a step came to is raised to who asks for it; when nobody does any more, asyncio need not complain."""
    if not step.cancelled():
        step.exception()
