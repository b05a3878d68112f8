"""A run's answers: as tables for the eye, and as a JSON and a Markdown file that stay."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.goals import Metric, Results, Verdict, overall, ratio
from benchmarks.machine import Machine
from benchmarks.suite import Question
from benchmarks.timing import Sample


class Row(msgspec.Struct, frozen=True):
    """One contestant's figures over all rounds, and the samples behind them."""

    label: str
    rate: float | None
    p50_ms: float | None
    p99_ms: float | None
    memory_mb: float | None
    ours_to_it: float | None
    samples: list[Sample]


class Answer(msgspec.Struct, frozen=True):
    question: str
    title: str
    rows: list[Row]
    verdicts: list[Verdict]


class Side(msgspec.Struct, frozen=True):
    durability: str
    versions: dict[str, str]


class BenchmarkReport(msgspec.Struct, frozen=True):
    suite: str
    date: str
    rounds: int
    seconds: float
    quick: bool
    machine: Machine
    sides: dict[str, Side]
    left_out: dict[str, str]
    notes: tuple[str, ...]
    answers: list[Answer] = []


def answer(question: Question, results: Results) -> Answer:
    rows = [make_row(label, samples, ratio(results, question.ours, label)) for label, samples in results.items()]
    return Answer(question.name, question.title, rows, [goal.judge(results) for goal in question.goals])


def make_row(label: str, samples: Sequence[Sample], ours_to_it: float | None) -> Row:
    metrics: tuple[Metric, ...] = ("rate", "p50_ms", "p99_ms", "memory_mb")
    figures = {metric: overall(samples, metric) for metric in metrics}
    return Row(label=label, ours_to_it=ours_to_it, samples=list(samples), **figures)


HEADER = ("who", "messages/s", "lowest – highest", "p50 ms", "p99 ms", "peak MB", "ours ÷ it", "note")


def cells(row: Row) -> tuple[str, ...]:
    rates = [sample.rate for sample in row.samples if sample.rate is not None]
    remarks = [sample.error or sample.note for sample in row.samples]
    return (
        row.label,
        shown(row.rate, ",.0f"),
        f"{min(rates):,.0f} – {max(rates):,.0f}" if rates else "",
        shown(row.p50_ms, ".3f"),
        shown(row.p99_ms, ".3f"),
        shown(row.memory_mb, ".0f"),
        shown(row.ours_to_it, ".2f"),
        next(filter(None, remarks), ""),
    )


def shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def spoken(verdict: Verdict) -> Text:
    mark, style = {True: ("met", "green"), False: ("MISSED", "red"), None: ("open", "yellow")}[verdict.met]
    return Text(f"{mark}: {verdict.goal} ({verdict.measured})", style)


def tally(answers: Sequence[Answer]) -> str:
    met = [verdict.met for answered in answers for verdict in answered.verdicts]
    return f"goals: {met.count(True)} met, {met.count(False)} missed, {met.count(None)} open"


def answer_table(answered: Answer) -> Group:
    table = Table()
    header, *rows = filled_columns([HEADER, *map(cells, answered.rows)])
    for name in header:
        table.add_column(name, justify="left" if name in ("who", "note") else "right", no_wrap=name != "note")
    for row in rows:
        table.add_row(*row)
    return Group(Text(answered.title, "bold"), table, *map(spoken, answered.verdicts), "")


def sides_table(sides: Mapping[str, Side]) -> Table:
    table = Table("who", "durability", "versions")
    for name, side in sides.items():
        table.add_row(name, side.durability, spell_versions(side))
    return table


def spell_versions(side: Side) -> str:
    return ", ".join(f"{package} {version}" for package, version in side.versions.items())


def filled_columns(lines: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The same lines, header first, without the columns in which no row has anything."""
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True)) or [HEADER]


def write(report: BenchmarkReport, folder: Path) -> list[Path]:
    """Writes both files, named by suite and day, and answers where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{report.suite}-{report.date[:10]}"
    written = [stem.with_suffix(".json"), stem.with_suffix(".md")]
    written[0].write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    written[1].write_text("\n".join(as_markdown(report)) + "\n")
    return written


def as_markdown(report: BenchmarkReport) -> Iterator[str]:
    yield f"# {report.suite}, {report.date}\n"
    yield f"{report.rounds} rounds, {report.seconds:g} s a measure{', quick sizes' if report.quick else ''}.\n"
    yield from (f"- {name}: {value}" for name, value in msgspec.structs.asdict(report.machine).items())
    yield ""
    yield from (f"- {note}" for note in report.notes)
    yield from goals_as_markdown(report.answers)
    for answered in report.answers:
        yield f"\n## {answered.title}\n"
        yield from markdown_table(filled_columns([HEADER, *map(cells, answered.rows)]))
    yield "\n## The sides\n"
    yield from markdown_table([("who", "durability", "versions"), *sides_as_cells(report)])


def goals_as_markdown(answers: Sequence[Answer]) -> Iterator[str]:
    marks = {True: "yes", False: "**no**", None: "open"}
    verdicts = [(answered.title, verdict) for answered in answers for verdict in answered.verdicts]
    yield "\n## Goals\n"
    rows = [(title, verdict.goal, verdict.measured, marks[verdict.met]) for title, verdict in verdicts]
    yield from markdown_table([("question", "goal", "measured", "met"), *rows])


def sides_as_cells(report: BenchmarkReport) -> list[tuple[str, str, str]]:
    present = [(name, side.durability, spell_versions(side)) for name, side in report.sides.items()]
    return present + [(name, "left out", reason) for name, reason in report.left_out.items()]


def markdown_table(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    header, *rows = lines
    for line in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(line)} |"
