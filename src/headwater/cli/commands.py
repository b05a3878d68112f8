"""A command, from its settings to how it ends: a coroutine comes to a result, which programs get as JSON and people as
lines and tables.

    @command
    async def show_identity(settings: Settings) -> Result:
        async with opened(settings) as hw:
            identity = await hw.store.ask(FindIdentity())
        return line({"identity": identity}, (identity, ""))

What has to be asked on the terminal is asked before the event loop runs, so that Ctrl-C ends the question: such a
command is a plain function that asks, and returns the coroutine of another.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import typer

from headwater.cli.exits import ExitCode
from headwater.cli.output import note, print_facts, print_json, print_line, print_table
from headwater.cli.session import run_async
from headwater.cli.settings import Settings, settings_of

Options = ParamSpec("Options")
Item = TypeVar("Item")


class Result(NamedTuple):
    """What a command came to: a line of JSON for each document, or what `show` prints. Notes are for both."""

    documents: Iterable[object]
    show: Callable[[], None]
    notes: Iterable[str] = ()
    code: ExitCode = ExitCode.OK


Working = Coroutine[Any, Any, Result]


def command(function: Callable[Concatenate[Settings, Options], Working]) -> Callable[..., None]:
    """A function of the settings and of its own options, as a command of the program."""

    @wraps(function)
    def run(ctx: typer.Context, *arguments: Options.args, **named: Options.kwargs) -> None:
        settings = settings_of(ctx)
        show_result(settings, run_async(function(settings, *arguments, **named)))

    # The program reads the options off the signature: in the place of the settings it hands over its context.
    signature = inspect.signature(function)
    first, *options = signature.parameters.values()
    context = first.replace(name="ctx", annotation=typer.Context)
    run.__signature__ = signature.replace(parameters=[context, *options], return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {"ctx": typer.Context, **{option.name: option.annotation for option in options}}
    return run


def show_result(settings: Settings, result: Result) -> None:
    """Show what a command came to, and end as it did."""
    if settings.json:
        for document in result.documents:
            print_json(document)
    else:
        result.show()
    for remark in result.notes:
        note(remark)
    if result.code:
        raise typer.Exit(result.code)


# ── results that many commands have ──


def line(document: object, *parts: tuple[str, str], notes: Iterable[str] = (), code: ExitCode = ExitCode.OK) -> Result:
    """Something was done, in one line."""
    return Result([document], lambda: print_line(*parts), notes, code)


def nothing(document: object, remark: str) -> Result:
    """There was nothing to be done, which scripts can tell by the exit code."""
    return Result([document], lambda: note(remark), code=ExitCode.NOTHING)


def facts(document: object, about: Sequence[tuple[str, object]]) -> Result:
    """One thing, with all that is known of it."""
    return Result([document], lambda: print_facts(about))


def table(
    found: Sequence[Item],
    document: Callable[[Item], object],
    columns: Sequence[str],
    row: Callable[[Item], Sequence[object]],
    *,
    empty: str,
    more: str = "",
) -> Result:
    """What was found: a line of JSON or a row for each; people are told when there is none, or when there is more."""

    def show() -> None:
        if not found:
            note(empty)
            return
        print_table(columns, [row(one) for one in found])
        if more:
            note(more)

    return Result(map(document, found), show)


def document_table(found: Sequence[Any], names: Sequence[str], *, empty: str = "") -> Result:
    """Documents under the names of their fields; without a word for none, the headings stand alone."""

    def show() -> None:
        if empty and not found:
            note(empty)
        else:
            print_table([name.upper().replace("_", " ") for name in names], [cells_of(one, names) for one in found])

    return Result(found, show)


def cells_of(document: Any, names: Sequence[str]) -> list[object]:
    """What a document has under these names, as the cells of a row."""
    return [document[name] for name in names]
