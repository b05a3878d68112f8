"""A further process inside a measure, for work that takes several: a function with one end of a pipe."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

ANSWER_SECONDS_MAX = 60.0
END_SECONDS_MAX = 5.0

Work = Callable[..., None]  # takes its end of the pipe, then the arguments


@contextmanager
def helper(work: Work, *arguments: Any) -> Iterator["Connection[Any, Any]"]:
    """Runs `work(pipe, *arguments)` in a fresh process and yields our end of the pipe."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()  # so that a helper that dies ends our waiting with EOFError
    try:
        yield ours
    finally:
        process.join(END_SECONDS_MAX)
        process.kill()


def receive(pipe: "Connection[Any, Any]", seconds: float = ANSWER_SECONDS_MAX) -> Any:
    """The helper's next word, waited for only so long."""
    if not pipe.poll(seconds):
        raise TimeoutError(f"a helper process said nothing for {seconds:.0f} s")
    return pipe.recv()
