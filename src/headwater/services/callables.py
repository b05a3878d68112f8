"""What kind of function a user has handed in: plain, async, or one whose call alone does nothing."""

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

from headwater.errors import InvalidOption

PLAIN_ONLY = "run of headwater.sync takes a plain function; headwater.open has a run for async ones"

Result = TypeVar("Result")


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of it is to be awaited, as far as can be told before it is called."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_behind(function))


def check_no_generator(taker: str, function: Callable[..., object]) -> None:
    """Raises if calling it would only make a generator: none of its lines would run, and all would look done."""
    if any(map(_is_generator, (function, _behind(function)))):
        raise InvalidOption(
            f"{taker} takes a function that does its work when it is called; {function!r:.80} is a generator "
            "function, of which no line runs before somebody iterates over it: write it without `yield`"
        )


def check_takes_one(taker: str, function: Callable[..., object]) -> None:
    """Raises if it cannot be called with one argument: each call would fail, and what it is called with be given up."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some that are written in C do not tell what they take.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise InvalidOption(
            f"{taker} takes a function that can be called with one argument; {function!r:.80} cannot: {error}"
        ) from None


def check_plain(function: Callable[..., object]) -> None:
    """Raises if a call of it is to be awaited, where nothing can be."""
    if is_async(function):
        raise InvalidOption(PLAIN_ONLY)


def check_no_awaitable(result: Result) -> Result:
    """What a plain function returned; raises if it is work that would have to be awaited, where nothing can be."""
    if inspect.isawaitable(result):
        let_be(result)
        raise InvalidOption(PLAIN_ONLY)
    return result


def let_be(result: object) -> None:
    """Nobody will await it: without this, Python says so when it is dropped."""
    if inspect.iscoroutine(result):
        result.close()


def undone(result: object) -> str:
    """What is wrong with what a function returned, if its work is still to be done; empty otherwise."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return "the function returned a generator, of which no line has run: write it without `yield`"
    return ""


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _behind(function: object) -> object:
    """What is called in the end, behind `functools.partial` and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return type(function).__call__
