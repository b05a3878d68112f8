"""Whatever Headwater raises can be named where people import Headwater."""

import importlib
import inspect
from collections.abc import Iterator

import pytest

import headwater
from headwater import errors

# What people import; each brings what it stands on.
MODULES = ("headwater.sync", "headwater.jobs", "headwater.outbox", "headwater.capture", "headwater.pipeline")
FAMILY = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, headwater.HeadwaterError)]


def descendants(kind: type[Exception]) -> Iterator[type[Exception]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.__name__)
def test_every_error_is_imported_from_headwater(error: type[Exception]) -> None:
    assert getattr(headwater, error.__name__) is error
    assert error.__name__ in headwater.__all__


def test_no_error_of_the_library_is_declared_where_nobody_would_look() -> None:
    for name in MODULES:
        importlib.import_module(name)
    # The command line says its own errors and ends; nobody catches them.
    raised = [one for one in descendants(headwater.HeadwaterError) if one.__module__.startswith("headwater.")]
    elsewhere = {one for one in raised if one not in FAMILY and not one.__module__.startswith("headwater.cli.")}
    assert elsewhere == set()
