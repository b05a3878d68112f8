"""Functions of the user's, called in a thread: whatever they do, whoever waits for them hears of it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar, cast

Result = TypeVar("Result")


class ThreadResult(Generic[Result]):
    """What a call came to. It is carried as a value because a future cannot carry every exception: it takes no
    `StopIteration`, so that whoever waits would wait for ever, and `GeneratorExit` would close the coroutine that
    waits.
    """

    def __init__(self, value: Result | None = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def get(self) -> Result:
        """What the function returned; what it raised is raised."""
        if self._error is not None:
            raise self._error
        return cast(Result, self._value)


def begin_in_thread(
    threads: Executor, function: Callable[..., Result], *arguments: object
) -> "asyncio.Future[ThreadResult[Result]]":
    """What a function comes to in one of these threads."""
    return asyncio.get_running_loop().run_in_executor(threads, _outcome_of, function, *arguments)


async def in_thread(threads: Executor, function: Callable[..., Result], *arguments: object) -> Result:
    """The same, waited for."""
    return (await begin_in_thread(threads, function, *arguments)).get()


def _outcome_of(function: Callable[..., Result], *arguments: object) -> ThreadResult[Result]:
    try:
        return ThreadResult(function(*arguments))
    except BaseException as error:
        return ThreadResult(error=error)
