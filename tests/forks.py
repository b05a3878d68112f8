"""What a forked child does with what its parent has open."""

import os
import signal
import traceback
from collections.abc import Callable

from headwater.errors import HeadwaterError
from tests.waiting import expect_soon

CHILD_SECONDS = 30.0


def in_a_child(work: Callable[[], object]) -> str:
    """What a forked child says of its work: the error that it ended with. One that hangs is a failure."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = "nothing"
        try:
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}" if isinstance(error, HeadwaterError) else traceback.format_exc()
        os.write(writing, said.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    try:
        expect_soon(lambda: os.waitpid(child, os.WNOHANG) != (0, 0), CHILD_SECONDS)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()
