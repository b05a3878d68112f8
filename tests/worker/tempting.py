"""A module as people write them, full of what a stranger would like to call. Only `welcome` is a job.

Whatever runs although it must not leaves a file behind.
"""

import os
import pathlib
import subprocess
from collections.abc import Callable
from functools import partial
from os import system
from typing import Any

from headwater.jobs import JobApp
from tests.worker.functions import add, plain, shout

__all__ = ["add", "pathlib", "plain", "shout", "subprocess", "system"]

app = JobApp()
MARK = "HEADWATER_TEST_MARK"


def leave_mark(*_: Any, **__: Any) -> None:
    """No decorator has made this a job."""
    pathlib.Path(os.environ["TEMPTING_MARK"]).touch()


@app.job
def welcome(name: str) -> str:
    return f"welcome {name}"


@app.job(name="named-by-hand")
def named(name: str) -> str:
    return f"named {name}"


class Tempting:
    """A class with everything that a class can have."""

    def __init__(self, *_: Any) -> None:
        leave_mark()

    def method(self, *_: Any) -> None:
        leave_mark()

    @classmethod
    def for_class(cls, *_: Any) -> None:
        leave_mark()

    @staticmethod
    def static(*_: Any) -> None:
        leave_mark()


class Callback:
    """Can be called like a function."""

    def __call__(self, *_: Any) -> None:
        leave_mark()


async def leave_mark_later(*_: Any) -> None:
    leave_mark()


def __getattr__(name: str) -> Callable[..., None]:
    """A module that has whatever it is asked for."""
    if name.startswith("__"):
        raise AttributeError(name)
    return leave_mark


callback = Callback()
partly = partial(leave_mark, 1)
unnamed = lambda *_: leave_mark()  # noqa: E731
table = {"leave_mark": leave_mark}
