"""The process in which functions run. The worker beside it keeps the lease and can end it whenever it must.

A worker has one runner for plain functions and one for async ones, so that ending a plain function, which may take its
process with it, is no matter of those that are awaited.
"""

import os
import signal
import sys
import traceback
from contextlib import suppress

import msgspec

from headwater.errors import HeadwaterError
from headwater.worker.async_calls import AsyncCalls
from headwater.worker.frames import Ready
from headwater.worker.loading import KnownFunctions, load_functions
from headwater.worker.outcomes import describe
from headwater.worker.plain_calls import INTERRUPT, PlainCalls
from headwater.worker.printing import capture_output
from headwater.worker.processes import end_with_parent
from headwater.worker.runner_ends import RunnerEnds, RunnerOptions
from headwater.worker.surroundings import Surroundings

# What a runner is for. The first one decides by what it finds.
PLAIN_KIND, ASYNC_KIND, EITHER_KIND = "plain", "async", "either"


def main(options: RunnerOptions) -> int:
    """Serve the worker at the other ends."""
    end_with_parent(signal.SIGKILL, options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(INTERRUPT, signal.SIG_IGN)
    sys.path.insert(0, os.getcwd())
    ends = RunnerEnds(options)
    streams = capture_output()
    try:
        ends.known = load_functions(options.sources)
    except BaseException as error:  # sys.exit() in a module is its author's mistake, and has a place in it.
        # What we refuse ourselves says all that there is to say; anything else is somebody's code.
        reason = str(error) if isinstance(error, HeadwaterError) else describe(error)
        ends.teller.send(Ready(reason))
        return 1
    ready = ready_of(ends.known)
    calls: PlainCalls | AsyncCalls
    signal.signal(INTERRUPT, lambda number, frame: calls.interrupt(number, frame))
    if options.kind == ASYNC_KIND or (options.kind == EITHER_KIND and not ready.plain):
        calls = AsyncCalls(ends, Surroundings(streams), options.concurrency, options.recycle_after)
    else:
        calls = PlainCalls(ends, Surroundings(streams), options.recycle_after)
    ends.teller.send(ready)
    calls.serve()
    return 0


def ready_of(known: KnownFunctions) -> Ready:
    """What the worker is told of the functions, and of what they and their apps declare."""
    apps = {id(one.app): one.app for one in known.values()}.values()
    schedules = [schedule for app in apps for schedule in app.schedules]
    plain = tuple(name for name, function in known.items() if not function.is_async)
    return Ready(
        plain=plain,
        asynchronous=tuple(name for name, function in known.items() if function.is_async),
        policies={name: function.policy for name, function in known.items()},
        schedules=msgspec.json.encode(schedules),
    )


if __name__ == "__main__":
    # Not sys.exit: threads that functions have left behind would be waited for. Nor may anything else lead there.
    _code = 1
    try:
        _code = main(msgspec.json.decode(sys.argv[1], type=RunnerOptions))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(_code)
