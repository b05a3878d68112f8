"""Jobs that are served on an event loop of another thread, asked for from any loop: each question hops to it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.log.operations import Operation
from headwater.services.bridge import Hand
from headwater.services.job_verbs import JobVerbs, Waiting
from headwater.stores.contract import Answerer

Result = TypeVar("Result")


class OtherLoop:
    """A `JobVerbs` over one that lives on the loop of `hand`."""

    def __init__(self, inner: JobVerbs, hand: Hand) -> None:
        self._inner = inner
        self._hand = hand
        self.store = cast(Answerer, _Hopping(inner.store, self))
        self.waits = cast(Waiting, _Hopping(inner.waits, self))

    @property
    def clock(self) -> Clock:
        """The time where the jobs are."""
        return self._inner.clock

    @property
    def config(self) -> Config:
        """The bounds."""
        return self._inner.config

    async def run(self, operation: Operation[Result], durability: Durability | None = None) -> Result:
        """One operation, and what it came to."""
        return await self.hop(self._inner.run(operation, durability))

    async def hop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What a coroutine comes to on the other loop."""
        return await asyncio.wrap_future(self._hand.give(work))


class _Hopping:
    """Something whose every method is a coroutine to be run on the other loop."""

    def __init__(self, inner: object, loop: OtherLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*arguments: Any) -> Any:
            return await self._loop.hop(method(*arguments))

        return call
