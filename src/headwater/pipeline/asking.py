"""Plain calls of what is async: Spark calls functions, stores answer awaitables."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def ask(runner: asyncio.Runner, question: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer to a question, on the loop of a runner.

    Not by its `run`: that looks who handles Ctrl-C, for which Python writes out its own last answer, megabytes of it.
    """
    return runner.get_loop().run_until_complete(question)
