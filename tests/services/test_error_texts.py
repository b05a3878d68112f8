"""Whatever is said of a failure can be kept."""

import pytest

from headwater.model.job import JobNumber, JobOutcome
from headwater.services.error_texts import named_text_of, text_of
from headwater.services.job_functions import JobFunction, JobRegistry
from headwater.worker.outcomes import failed
from tests.services.test_running import TEXTS
from tests.worker import functions


class NamelessKind(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyboardInterrupt


class Nameless(Exception, metaclass=NamelessKind):
    def __str__(self) -> str:
        raise KeyboardInterrupt


ERRORS = {**TEXTS, "nothing at all": Nameless()}


@pytest.mark.parametrize("name", ERRORS)
def test_any_exception_has_a_short_text_that_can_be_written(name: str) -> None:
    for text in (text_of(ERRORS[name], 100), named_text_of(ERRORS[name], 100)):
        assert len(text) <= 100
        assert text.encode().decode() == text


@pytest.mark.parametrize("name", ERRORS)
def test_a_job_fails_with_any_exception(name: str) -> None:
    function = JobRegistry().job(functions.plain)
    assert isinstance(function, JobFunction)
    done = failed(JobNumber(1), function, ERRORS[name], 0.0)
    assert done.outcome is JobOutcome.FAILED
    assert done.error
    assert done.error.encode().decode() == done.error
