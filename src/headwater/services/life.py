"""Whether what people hold may be used: it was opened, in this process, and is not closed yet.

A fork copies what is open into a process that has neither its threads nor its event loop. Every use of the copy would
wait for ever, or speak over the parent's connections; so it is refused, and said what to do instead.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from headwater.errors import Closed, InvalidInput, NotOpened
from headwater.forks import Origin
from headwater.log.home_loop import HomeLoop

P = ParamSpec("P")
R = TypeVar("R")


class _State(Enum):
    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Life:
    """The life of something that is opened, used and closed. `name` and `line` are what to call it and how to open it.

    >>> Life("the store", "async with headwater.open(...) as hw:")
    """

    def __init__(self, name: str, line: str) -> None:
        self._name = name
        self.line = line
        self._state = _State.NEW
        self._origin = Origin()

    @property
    def is_here(self) -> bool:
        """Whether it was made by this process, and not by one that this process was forked from."""
        return self._origin.is_here

    @property
    def is_open(self) -> bool:
        """Whether it may be used."""
        return self._state is _State.OPEN and self.is_here

    @contextmanager
    def opening(self, home: HomeLoop) -> Iterator[None]:
        """It is opened meanwhile, and at home in the running event loop from now on.

        Raises when it is open already: it would be taken from who has it, and the end of one block would close it
        under the other. What an event loop has left open that has ended itself, nobody has any more.
        """
        self._check_may_open(home)
        home.settle()
        self._state, self._origin = _State.OPENING, Origin()
        try:
            yield
        except BaseException:
            if self._state is _State.OPENING:
                self._state = _State.NEW
            raise
        self.begin()

    def _check_may_open(self, home: HomeLoop) -> None:
        if self._state is _State.NEW:
            return
        if self._state is _State.CLOSED:
            raise Closed(f"{self._name} was closed, and is not opened a second time; make a new one: {self.line}")
        if not self.is_here:
            self.check()
        if home.has_ended():
            return
        home.check()
        raise self.is_taken()

    def is_taken(self) -> InvalidInput:
        """The error for who begins a block with what is open in another one."""
        return InvalidInput(
            f"{self._name} is open already, and the end of this block would close it for the other one; "
            f"use it without a block of its own, or make another one: {self.line}"
        )

    def begin(self) -> None:
        """It is open from now on, for this process."""
        self._state = _State.OPEN
        self._origin = Origin()

    def end(self) -> None:
        """It is closed from now on."""
        self._state = _State.CLOSED

    def check(self) -> None:
        """Raises unless it is open here."""
        if self.is_open:
            return
        self._origin.check(self._name, self.line)
        if self._state is _State.CLOSED:
            raise Closed(f"{self._name} is closed; to go on, open it again: {self.line}")
        raise NotOpened(f"{self._name} is not open; use it inside a block: {self.line}")


class Living(Protocol):
    """What has a life."""

    @property
    def life(self) -> Life:
        """Whether it may be used."""
        ...


S = TypeVar("S", bound=Living)


def verb(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """A coroutine method that is refused as soon as it is called when there is nothing open to do it.

    At once and not when it is awaited: who forgot the `async with` has often forgotten the `await`, too.
    """

    @wraps(method)
    def call(self: S, /, *arguments: P.args, **options: P.kwargs) -> Coroutine[Any, Any, R]:
        self.life.check()
        return method(self, *arguments, **options)

    return call
