"""What a call came to, whatever it did: nothing that a function returns or raises may harm who looks at it."""

import traceback
from typing import Any

from headwater.model.job import JobNumber, JobOutcome
from headwater.services.error_texts import storable, text_of
from headwater.services.job_functions import Cancel, JobFunction, Retry, Snooze, check_after
from headwater.services.job_options import encode_json
from headwater.worker.frames import Done

ERROR_LENGTH_MAX = 8_192
MESSAGE_LENGTH_MAX = 2_048
RESULT_BYTES_MAX = 1_048_576


def completed(number: JobNumber, result: Any, seconds: float) -> Done:
    """A call that returned; a result that is no JSON value is a failure that no retry mends."""
    if result is None:
        return Done(number, JobOutcome.COMPLETED, seconds)
    try:
        kept = encode_json(result)
    except Exception as error:
        reason = f"what it returned cannot be kept as JSON: {error_text(error)}"
        return Done(number, JobOutcome.BURIED, seconds, error=reason)
    if len(kept) > RESULT_BYTES_MAX:
        reason = f"what it returned has {len(kept):,} bytes as JSON; {RESULT_BYTES_MAX:,} are kept"
        return Done(number, JobOutcome.BURIED, seconds, error=reason)
    return Done(number, JobOutcome.COMPLETED, seconds, kept.decode())


def failed(number: JobNumber, function: JobFunction[..., Any], error: BaseException, seconds: float) -> Done:
    """A call that raised: what it asked for, or what its exception means."""
    try:
        if isinstance(error, (Retry, Snooze)):
            return _asked(number, error, seconds)
        if isinstance(error, Cancel):
            return Done(number, JobOutcome.CANCELLED, seconds, error=error_text(error) or "the job cancelled itself")
        # What ends programs, as sys.exit() does, is a failure of the job like any other.
        retried = isinstance(error, function.retry_for) or not isinstance(error, Exception)
        for_good = isinstance(error, function.give_up_for) or not retried
    except Exception as mistake:
        # A subclass with a mind of its own, or a policy that names no exceptions.
        return Done(number, JobOutcome.FAILED, seconds, error=describe(mistake))
    return Done(number, JobOutcome.BURIED if for_good else JobOutcome.FAILED, seconds, error=describe(error))


def _asked(number: JobNumber, error: Retry | Snooze, seconds: float) -> Done:
    """It asked to come again; a delay that is none is a mistake of the job."""
    outcome = JobOutcome.SNOOZED if isinstance(error, Snooze) else JobOutcome.FAILED
    after = getattr(error, "after", None)
    if after is not None:
        after = check_after(after)
    elif outcome is JobOutcome.SNOOZED:
        after = 0.0
    return Done(number, outcome, seconds, error=error_text(error), after_seconds=after)


def error_text(error: BaseException) -> str:
    """The text of an exception, if it has one."""
    return _as_text(text_of(error))


def describe(error: BaseException) -> str:
    """What went wrong in its first line, the rest of what it says below, and where it came from: whoever shows one line
    of it shows the first."""
    try:
        words = error_text(error)
        text = f"{_name_of(type(error))}: {words}" if words else _name_of(type(error))
        trace = "".join(traceback.format_exception(error)).strip()
        return f"{storable(text[:MESSAGE_LENGTH_MAX])}\n\n{_as_text(trace)}"
    except BaseException:
        return text_of(error, MESSAGE_LENGTH_MAX)


def _name_of(kind: type[BaseException]) -> str:
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _as_text(text: str) -> str:
    """Of a long text its beginning and its end."""
    if len(text) > ERROR_LENGTH_MAX:
        half = ERROR_LENGTH_MAX // 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return storable(text)
