"""Pops that wait for the same stand in a line, oldest first."""

import asyncio
from collections.abc import Callable

from headwater.log.operations import Pop, Popped
from headwater.services.pop_keys import Key

# Whether somebody's credential is still what it was when they came.
IsKnown = Callable[[], bool]


class Intention:
    """One waiting pop. Of who came through a door, `is_known` tells whether they are known there still."""

    __slots__ = ("answer", "deadline", "is_asked_for", "is_known", "key", "operation")

    def __init__(
        self, operation: Pop, key: Key, deadline: float, answer: asyncio.Future[Popped], is_known: IsKnown | None
    ) -> None:
        self.operation = operation
        self.is_known = is_known
        self.key = key
        self.deadline = deadline
        self.answer = answer
        # While a pop that acks on the way is under way for it, its deadline waits: nobody could give back what comes.
        self.is_asked_for = False


class Line:
    """The intentions of one key, oldest first."""

    __slots__ = ("again", "busy", "served_before", "timer", "unwatch", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Intention] = {}
        self.busy = False
        self.again = False
        self.served_before = 0
        self.timer: asyncio.TimerHandle | None = None
        self.unwatch: Callable[[], None] = lambda: None
