"""What a suite is made of: questions, each asked of several contestants and held to goals."""

import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.goals import Goal
from benchmarks.peers import Context
from benchmarks.timing import Sample

Workload = Callable[[str, Context], Coroutine[Any, Any, Sample]]

SUITES = ("queues", "http", "jobs", "pipeline", "live", "stores", "bucket", "rooms")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of a table: a peer at a workload."""

    label: str
    peer: str
    workload: Workload


@dataclass(frozen=True, slots=True)
class Question:
    """One table. `ours` is the contestant that every other is compared with."""

    name: str
    title: str
    ours: str
    contestants: tuple[Contestant, ...]
    goals: tuple[Goal, ...]


class Suite(Protocol):
    """A module of this package."""

    NOTES: tuple[str, ...]

    def questions(self, quick: bool) -> tuple[Question, ...]: ...


def load_suite(name: str) -> Suite:
    suite: Suite = importlib.import_module(f"benchmarks.{name}")
    return suite


def find(suite: str, question: str, label: str, quick: bool) -> Contestant:
    """The contestant that a measuring process was asked for by name."""
    asked = next(each for each in load_suite(suite).questions(quick) if each.name == question)
    return next(each for each in asked.contestants if each.label == label)
