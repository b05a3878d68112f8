"""The command line: which suite, how long, against whom. See `python -m benchmarks --help`."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks import compare, measure
from benchmarks.machine import describe_machine, without_folders
from benchmarks.peers import load, versions_of
from benchmarks.report import Answer, BenchmarkReport, Side, answer, answer_table, sides_table, tally, write
from benchmarks.suite import SUITES, Question, load_suite
from benchmarks.timing import Sample

RESULTS = Path(__file__).parent / "results"
PLAIN_WIDTH = 140  # of the tables in a file or a pipe
# What a suite may say of itself by these names.
ROUNDS = 3
SPARE_SECONDS = 90.0  # above the budget of a measure: starting, filling the queue, stopping


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--rounds", type=int, help="how often each measure is taken (the suite says; 1 if quick)")
    parser.add_argument("--seconds", type=float, help="how long a measure runs (2, or 0.5 if quick)")
    parser.add_argument("--only", action="append", metavar="QUESTION", help="ask only this question; may be repeated")
    parser.add_argument("--peers", metavar="A,B", help="only the sides whose names begin so, e.g. headwater,raw,redis")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, shorter measures, a tenth of the waiting messages"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases lie meanwhile"
    )
    parser.add_argument("--out", type=Path, help="folder of the result files; a partial run writes none without it")
    options = parser.parse_args()
    suite = load_suite(options.suite)
    options.rounds = options.rounds or (1 if options.quick else getattr(suite, "ROUNDS", ROUNDS))
    options.spare_seconds = getattr(suite, "SPARE_SECONDS", SPARE_SECONDS)
    options.seconds = options.seconds or (0.5 if options.quick else 2.0)
    return options


def choose(questions: Sequence[Question], options: argparse.Namespace) -> list[Question]:
    """The questions asked for, with only the sides asked for."""
    known = [question.name for question in questions]
    if unknown := set(options.only or ()) - set(known):
        sys.exit(f"no question {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    asked = [question for question in questions if not options.only or question.name in options.only]
    prefixes = tuple((options.peers or "").split(","))
    return [keep(question, {name for name in peers_of([question]) if name.startswith(prefixes)}) for question in asked]


def keep(question: Question, peers: set[str]) -> Question:
    return replace(question, contestants=tuple(each for each in question.contestants if each.peer in peers))


def peers_of(questions: Sequence[Question]) -> list[str]:
    return list(dict.fromkeys(contestant.peer for question in questions for contestant in question.contestants))


def find_sides(names: Sequence[str]) -> tuple[dict[str, Side], dict[str, str]]:
    """The sides that run on this machine, and why the others do not."""
    sides, left_out = {}, {}
    for name in names:
        try:
            peer = load(name)
            sides[name] = Side(peer.durability, versions_of(peer))
        except ImportError as error:
            left_out[name] = without_folders(str(error))
    return sides, left_out


class Run:
    """Asks the questions one after the other; within one, each round goes over all sides in turn."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._options = options
        self._console = console
        self._progress = Progress(*columns, console=console, transient=True)

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        total = self._options.rounds * sum(len(question.contestants) for question in questions)
        with self._progress:
            bar = self._progress.add_task("", total=total)
            return [self._ask(question, bar) for question in questions if question.contestants]

    def _ask(self, question: Question, bar: TaskID) -> Answer:
        results: dict[str, list[Sample]] = {each.label: [] for each in question.contestants}
        for number in range(self._options.rounds):
            for label in turned(list(results), number):
                self._progress.update(bar, description=f"{question.name} · round {number + 1} · {label}")
                results[label].append(self._measure(question.name, label))
                self._progress.advance(bar)
        answered = answer(question, results)
        self._console.print(answer_table(answered))
        return answered

    def _measure(self, question: str, label: str) -> Sample:
        options = self._options
        os.sync()  # what the measure before has left to write is not this one's burden
        with tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=options.folder) as folder:
            task = measure.Task(options.suite, question, label, options.quick, options.seconds, folder)
            return measure.run(task, options.seconds + options.spare_seconds)


def turned(labels: list[str], number: int) -> list[str]:
    """Another side begins in each round, so that none is always the one after the heaviest."""
    start = number % len(labels)
    return labels[start:] + labels[:start]


def announce(report: BenchmarkReport, console: Console) -> None:
    for name, reason in report.left_out.items():
        console.print(f"{name} is left out: {reason}", style="yellow")
    if report.machine.filesystem == "tmpfs":
        console.print("the databases lie in memory, where fsync costs nothing: choose another --folder", style="yellow")
    console.print(sides_table(report.sides), "")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that a measure under way is ended, too
    options = read_options()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    suite = load_suite(options.suite)
    chosen = choose(suite.questions(options.quick), options)
    sides, left_out = find_sides(peers_of(chosen))
    report = BenchmarkReport(
        suite=options.suite,
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        rounds=options.rounds,
        seconds=options.seconds,
        quick=options.quick,
        machine=describe_machine(options.folder),
        sides=sides,
        left_out=left_out,
        notes=suite.NOTES,
    )
    announce(report, console)
    report.answers.extend(Run(options, console).ask_all([keep(question, set(sides)) for question in chosen]))
    console.print(tally(report.answers))
    if options.out or not (options.quick or options.only or options.peers):
        for path in write(report, options.out or RESULTS):
            console.print(f"wrote {os.path.relpath(path)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        compare.main(sys.argv[2:])
    else:
        main()
