"""A store whose answers are timed: what services ask goes through here. Commits are timed by the committer."""

from time import perf_counter
from typing import Any, cast

from headwater.log.home_loop import HomeLoop
from headwater.log.timings import Timings
from headwater.stores.contract import Store
from headwater.stores.questions import Answer, Question


class TimedStore:
    """A store whose answers are timed; all else is the store's own."""

    def __init__(self, store: Store, timings: Timings, home: HomeLoop) -> None:
        self._store = store
        self._home = home
        self._timings = timings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def ask(self, question: Question[Answer]) -> Answer:
        """As the store does."""
        self._home.check()
        begun = perf_counter()
        answer = await self._store.ask(question)
        self._timings.answered(question, perf_counter() - begun)
        return answer


def timed(store: Store, timings: Timings, home: HomeLoop | None = None) -> Store:
    """The store, with its answers timed, for who asks in the event loop where it is at home."""
    return cast(Store, TimedStore(store, timings, home or HomeLoop("this store")))
