"""Subjects: each operation and each question belongs to one, its handler answers what was declared, hooks that a
subject does not have are not called."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import MethodType
from typing import Any, NoReturn, TypeVar, get_type_hints

import pytest

import headwater.log
import headwater.stores
from headwater.clock import SystemClock, Timestamp
from headwater.config import load_config
from headwater.log.job_operations import ChooseJobs
from headwater.log.operations import Operation, Transaction, result_type
from headwater.stores.codec import Codec
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.questions import Question, answer_type
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.tables.answers import Answers
from headwater.stores.tables.subject import Subject, overriding
from headwater.stores.tables.subjects import Subjects

Kind = TypeVar("Kind")


def lose(reason: str, kind: type[Exception] = AssertionError) -> NoReturn:
    raise AssertionError(reason)


def make_subjects() -> Subjects:
    return Subjects(SqliteConnection(":memory:"), load_config({}), Codec(), 7, lose, lambda now, by: None)


def kinds_below(kind: type[Kind]) -> Iterator[type[Kind]]:
    """All classes of the package that come from this one."""
    for package in (headwater.log, headwater.stores):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    for below in kind.__subclasses__():
        if below.__module__.startswith("headwater."):
            yield below
            yield from kinds_below(below)


OPERATIONS = [kind for kind in kinds_below(Operation) if kind is not ChooseJobs]
# When jobs are ready is told by what the writer remembers of them (tests/contracts/test_jobs.py).
QUESTIONS = [kind for kind in kinds_below(Question) if kind is not FindJobsReady]
HANDLERS = [(kind, handler, subject) for subject in make_subjects().all for kind, handler in subject.handlers().items()]
ANSWERS = Answers(SqliteConnection(":memory:"), Codec(), SystemClock()).handlers


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_of_one_subject(operation: type[Operation]) -> None:
    subjects = [subject for kind, _, subject in HANDLERS if kind is operation]
    # A transaction is made of operations of any subject: it is the writer's own.
    assert len(subjects) == (operation is not Transaction)


@pytest.mark.parametrize(
    ("operation", "handler"), [pytest.param(*found[:2], id=found[0].__name__) for found in HANDLERS]
)
def test_a_handler_takes_its_operation_and_answers_what_that_declares(
    operation: type[Operation], handler: MethodType
) -> None:
    hints = get_type_hints(handler.__func__)
    answered = hints.pop("return")
    taken, at = hints.values()
    # What applies an operation may apply others that are the same with more said of them.
    assert issubclass(operation, taken)
    assert at is Timestamp
    assert answered == result_type(operation)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_an_answer_of_the_type_that_it_declares(question: type[Question[Any]]) -> None:
    handler = ANSWERS[question]
    assert isinstance(handler, MethodType)
    hints = get_type_hints(handler.__func__)
    assert hints.pop("return") == answer_type(question)
    assert list(hints.values()) == [question]


def test_operations_that_are_applied_together_can_be_applied_alone() -> None:
    for subject in make_subjects().all:
        assert set(subject.together()) <= set(subject.handlers())
        assert set(subject.phases) <= set(subject.handlers())


def test_a_hook_that_a_subject_leaves_alone_is_not_called() -> None:
    class Quiet(Subject):
        """Has no hook of its own."""

    class Busy(Subject):
        """Has one."""

        def begin(self, now: Timestamp) -> None:
            """Does something."""

    busy = Busy()
    assert overriding([Quiet(), busy, Quiet()], "begin") == [busy]
    assert overriding([Quiet(), busy], "forget") == []


def test_a_commit_calls_few_hooks() -> None:
    """What every commit pays for: one more here is one more call for every push."""
    subjects = make_subjects().all
    assert [type(subject).__name__ for subject in overriding(subjects, "begin")] == [
        "ClockJumps",
        "Delayed",
    ]
    assert [type(subject).__name__ for subject in overriding(subjects, "flush")] == ["Cursors"]
    assert [type(subject).__name__ for subject in overriding(subjects, "close")] == ["JobBooks", "Documents"]
