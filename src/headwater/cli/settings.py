"""Options that every command takes, before or after its name: `--store`, `--database`, `--json`, hidden `--debug`.

They are added to each command and group here and not in the signature of every function. What is said last, so closest
to the command, counts.
"""

import os
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from headwater.model.names import DATABASE_DEFAULT

STORE_DEFAULT = "headwater.db"
STORE_VARIABLE = "HEADWATER_STORE"
PANEL = "Options of every command"


class Choices:
    """What the options said so far; filled while the command line is parsed."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.database: str | None = None
        self.json = False
        self.debug = False


class Settings(NamedTuple):
    """What holds for the command that runs."""

    store: str
    database: str
    json: bool


def settings_of(ctx: typer.Context) -> Settings:
    """The settings of the command that runs."""
    choices: Choices = ctx.obj
    store = choices.store or os.environ.get(STORE_VARIABLE) or STORE_DEFAULT
    return Settings(store, choices.database or DATABASE_DEFAULT, choices.json)


def _remember(ctx: typer.Context, parameter: TyperOption, value: object) -> None:
    if value and parameter.name:
        setattr(ctx.obj, parameter.name, value)


def _option(name: str, **about: Any) -> TyperOption:
    # Eager, so that an error in another option is already told in the form that --json asks for.
    return TyperOption(param_decls=[name], callback=_remember, is_eager=True, expose_value=False, **about)


def shared_options() -> list[TyperOption]:
    """Fresh copies of the options: a command owns its own."""
    store = f"The store: a path or a URL. {STORE_VARIABLE} gives the default, else {STORE_DEFAULT}."
    return [
        _option("--store", metavar="STORE", help=store, rich_help_panel=PANEL),
        _option("--database", metavar="NAME", help="The database (tenant) in the store.", rich_help_panel=PANEL),
        _option("--json", is_flag=True, default=False, help="Print JSON, for programs.", rich_help_panel=PANEL),
        _option("--debug", is_flag=True, default=False, hidden=True),
    ]


class Command(TyperCommand):
    """A command with the options that every command takes."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *shared_options()], **about)


class Group(TyperGroup):
    """A group of commands with the options that every command takes."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *shared_options()], **about)
