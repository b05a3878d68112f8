"""What a call came to, whatever it did: nothing that a function returns or raises may harm who looks at it."""

import math
import traceback
from typing import Any

import msgspec

from headwater.errors import InvalidOption
from headwater.model.job import JobNumber, Outcome
from headwater.services.job_functions import Cancel, JobFunction, Retry, Snooze
from headwater.services.job_options import seconds_of
from headwater.worker.frames import Done

ERROR_LENGTH_MAX = 8_192
RESULT_BYTES_MAX = 1_048_576


def completed(number: JobNumber, result: Any, seconds: float) -> Done:
    """A call that returned; a result that is no JSON value is a failure that no retry mends."""
    if result is None:
        return Done(number, Outcome.COMPLETED, seconds)
    try:
        kept = msgspec.json.encode(result)
    except Exception as error:
        reason = f"what it returned cannot be kept as JSON: {said(error)}"
        return Done(number, Outcome.BURIED, seconds, error=reason)
    if len(kept) > RESULT_BYTES_MAX:
        reason = f"what it returned has {len(kept):,} bytes as JSON; {RESULT_BYTES_MAX:,} are kept"
        return Done(number, Outcome.BURIED, seconds, error=reason)
    return Done(number, Outcome.COMPLETED, seconds, kept.decode())


def failed(number: JobNumber, function: JobFunction[..., Any], error: BaseException, seconds: float) -> Done:
    """A call that raised: what it asked for, or what its exception means."""
    try:
        if isinstance(error, (Retry, Snooze)):
            return _asked(number, error, seconds)
        if isinstance(error, Cancel):
            return Done(number, Outcome.CANCELLED, seconds, error=said(error) or "the job cancelled itself")
        # What ends programs, as sys.exit() does, is a failure of the job like any other.
        retried = isinstance(error, function.retry_for) or not isinstance(error, Exception)
        for_good = isinstance(error, function.give_up_for) or not retried
    except Exception as mistake:
        # A subclass with a mind of its own, or a policy that names no exceptions.
        return Done(number, Outcome.FAILED, seconds, error=describe(mistake))
    return Done(number, Outcome.BURIED if for_good else Outcome.FAILED, seconds, error=describe(error))


def _asked(number: JobNumber, error: Retry | Snooze, seconds: float) -> Done:
    """It asked to come again; a delay that is none is a mistake of the job."""
    outcome = Outcome.SNOOZED if isinstance(error, Snooze) else Outcome.FAILED
    after = getattr(error, "after", None)
    if after is not None:
        after = seconds_of("after", after)
        if not 0 <= after < math.inf:
            raise InvalidOption(f"after must be 0 seconds or more; got {after!r}")
    elif outcome is Outcome.SNOOZED:
        after = 0.0
    return Done(number, outcome, seconds, error=said(error), after_seconds=after)


def said(error: BaseException) -> str:
    """The text of an exception, if it has one."""
    try:
        return _as_text(str(error))
    except Exception:
        return f"{type(error).__name__}, which cannot be shown"


def describe(error: BaseException) -> str:
    """The error and where it came from, the end of it when it is long."""
    try:
        return _as_text("".join(traceback.format_exception(error)).strip())
    except Exception:
        return f"{type(error).__name__}, which cannot be shown"


def _as_text(text: str) -> str:
    return text[-ERROR_LENGTH_MAX:].encode("utf-8", "replace").decode()
