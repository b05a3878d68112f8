"""Jobs by id or by what they have in common, for commands that change many: how many are meant, some of them, and then
the question whether to go on."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli.commands import Result, Working, nothing
from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import confirm, note, plural, print_line, print_table
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.log.job_operations import Changed, ChooseJobs
    from headwater.services.database import Database
    from headwater.stores.job_questions import JobStatus

SomeIds = Annotated[list[str] | None, typer.Argument(help="Jobs by id.", metavar="ID...", show_default=False)]
OfQueue = Annotated[str, typer.Option("--queue", help="All of this queue.", show_default=False)]
OfType = Annotated[str, typer.Option("--type", help="All of this type.", show_default=False)]
WithError = Annotated[str, typer.Option("--error", help="All with this in their error.", show_default=False)]
InState = Annotated[str, typer.Option("--state", help="All in this state.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
SAMPLE = 5
BITE = 1_000
FOUND_MAX = 100_000


class Choice(NamedTuple):
    """Which jobs: these ids, or all that a filter finds in one of these states."""

    ids: Sequence[str]
    states: Sequence[str]
    queue: str = ""
    type: str = ""
    error: str = ""

    def is_filter(self) -> bool:
        """Whether anything but the state narrows it down."""
        return bool(self.queue or self.type or self.error)


class Deed(NamedTuple):
    """What is done with them, in words and as a call: `Cancel`, `cancelled`."""

    name: str
    done: str
    act: "Callable[[Database, list[str]], Awaitable[Changed]]"
    warning: str = ""


def changes(kind: "type[ChooseJobs]", *, skip_unfit: bool) -> "Callable[[Database, list[str]], Awaitable[Changed]]":
    """What a deed does with jobs by id."""

    def act(hw: "Database", names: list[str]) -> "Awaitable[Changed]":
        return hw.jobs.change(kind(database=hw.jobs.database, ids=tuple(names), skip_unfit=skip_unfit))

    return act


def change_chosen(settings: Settings, choice: Choice, deed: Deed, *, everything: bool, yes: bool) -> Working:
    """Change those named; or show how many are meant, ask, and change them."""
    if bool(choice.ids) == (everything or choice.is_filter()):
        raise Misuse("name the jobs, or say which: --all, --queue, --type, --error")
    return _change(settings, choice, deed, yes=yes)


async def _change(settings: Settings, choice: Choice, deed: Deed, *, yes: bool) -> Result:
    async with reached(settings) as hw:
        changed: list[Changed] = []
        if choice.ids:
            changed.append(await deed.act(hw, list(choice.ids)))
        else:
            found = await _find(hw, choice)
            if not found:
                return nothing({"ids": [], "count": 0}, "there are no such jobs")
            preview(settings, found, deed, yes=yes)
            for start in range(0, len(found), BITE):
                changed.append(await deed.act(hw, [job.id for job in found[start : start + BITE]]))
        return _changed(changed, deed)


async def _find(hw: "Database", choice: Choice) -> "list[JobStatus]":
    found: list[JobStatus] = []
    for state in choice.states:
        found += await hw.jobs.list(
            state=state, queue=choice.queue or None, type=choice.type or None, error=choice.error, limit=FOUND_MAX
        )
    return found


def preview(settings: Settings, jobs: "list[JobStatus]", deed: Deed, *, yes: bool) -> None:
    """How many, and some of them; go on only when somebody said yes."""
    from headwater.services.job_documents import describe_work

    if not settings.json and not yes:
        rows = [(job.id, job.state.value, job.queue, describe_work(job)[:60]) for job in jobs[:SAMPLE]]
        print_table(("ID", "STATE", "QUEUE", "JOB"), rows)
        if len(jobs) > SAMPLE:
            note(f"and {len(jobs) - SAMPLE:,} more")
    confirm(f"{deed.name} {plural(len(jobs), 'job')}?{deed.warning}", yes=yes)


def _changed(changed: "list[Changed]", deed: Deed) -> Result:
    """What the store has done: a job that runs is not cancelled before its worker has ended it, and may complete."""
    ids = [name for one in changed for name in one.ids]
    asked = sorted(name for one in changed for name in one.asked_to_stop)
    left = {
        "passed_over": [name for one in changed for name in one.passed_over],
        "orphaned": [name for one in changed for name in one.orphaned],
        "kept": [name for one in changed for name in one.kept],
    }
    document: dict[str, object] = {"ids": ids, "count": len(ids)}
    if deed.name == "Cancel":
        document["asked_to_stop"] = asked
    document |= {name: names for name, names in left.items() if names}
    if cancelled := sum(one.cancelled for one in changed):
        document["cancelled"] = cancelled
    if not ids and not any(left.values()):
        return nothing(document, f"none of these jobs can be {deed.done}: they are in another state")
    done = [name for name in ids if name not in set(asked)]
    shown = {
        deed.done: done,
        "asked to stop": asked,
        "passed over, another job has the unique key": left["passed_over"],
        "passed over, a job that they depend on was dropped": left["orphaned"],
        "kept, others depend on them that may still run": left["kept"],
    }
    code = ExitCode.OK if ids else ExitCode.NOTHING
    notes = [f"cancelled {plural(cancelled, 'job')} with them, which waited for one of them"] if cancelled else []
    return Result([document], lambda: _print_changed(shown), code=code, notes=notes)


def _print_changed(changed: "dict[str, list[str]]") -> None:
    for words, names in changed.items():
        if names:
            which = ", ".join(names) if len(names) <= 10 else plural(len(names), "job")
            print_line((f"{words}: ", ""), (which, "cyan"))
