"""Options that every command takes, before or after its name: `--store`, `--database`, `--adopt`, `--json`, `--debug`.

Commands of queues, jobs and flows also take `--server` and `--token-file`: they work on a server as on a store.

They are added to each command and group here and not in the signature of every function. What is said last, so closest
to the command, counts.
"""

import os
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from headwater.cli.exits import Misuse
from headwater.model.names import DATABASE_DEFAULT

STORE_DEFAULT = "headwater.db"
STORE_VARIABLE = "HEADWATER_STORE"
SERVER_VARIABLE = "HEADWATER_SERVER"
TOKEN_VARIABLE = "HEADWATER_TOKEN"
PANEL = "Options of every command"


class Choices:
    """What the options said so far; filled while the command line is parsed."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.database: str | None = None
        self.server: str | None = None
        self.token_file: str | None = None
        self.adopt = False
        self.json = False
        self.debug = False


class Settings(NamedTuple):
    """What holds for the command that runs."""

    store: str
    database: str
    json: bool
    server: str = ""
    token_file: str = ""
    adopt: bool = False


def settings_of(ctx: typer.Context) -> Settings:
    """The settings of the command that runs."""
    choices: Choices = ctx.obj
    store = choices.store or os.environ.get(STORE_VARIABLE) or STORE_DEFAULT
    return Settings(
        store=store,
        database=choices.database or DATABASE_DEFAULT,
        json=choices.json,
        server=_server(choices),
        token_file=choices.token_file or "",
        adopt=choices.adopt,
    )


def _server(choices: Choices) -> str:
    """The server that was named, '' when the command is to work on a store: one that is named by option is meant."""
    if choices.server and choices.store:
        raise Misuse("a command works on a --store or on a --server, not on both")
    server = choices.server or ("" if choices.store else os.environ.get(SERVER_VARIABLE, ""))
    if server and choices.adopt:
        raise Misuse("--adopt is for stores; whoever starts the server adopts the file")
    if server and choices.database:
        raise Misuse("--database is for stores; on a server the database is that of the token")
    return server


def _remember(ctx: typer.Context, parameter: TyperOption, value: object) -> None:
    if value and parameter.name:
        setattr(ctx.obj, parameter.name, value)


def _option(name: str, **about: Any) -> TyperOption:
    # Eager, so that an error in another option is already told in the form that --json asks for.
    return TyperOption(param_decls=[name], callback=_remember, is_eager=True, expose_value=False, **about)


def shared_options() -> list[TyperOption]:
    """Fresh copies of the options: a command owns its own."""
    store = f"The store: a path or a URL. {STORE_VARIABLE} gives the default, else {STORE_DEFAULT}."
    adopt = "Add Headwater's tables to a store that has tables of another program; needed once."
    return [
        _option("--store", metavar="STORE", help=store, rich_help_panel=PANEL),
        _option("--database", metavar="NAME", help="The database (tenant) in the store.", rich_help_panel=PANEL),
        _option("--adopt", is_flag=True, default=False, help=adopt, rich_help_panel=PANEL),
        _option("--json", is_flag=True, default=False, help="Print JSON, for programs.", rich_help_panel=PANEL),
        _option("--debug", is_flag=True, default=False, hidden=True),
    ]


def server_options() -> list[TyperOption]:
    """Fresh copies of the options of commands that also work on a server."""
    server = f"Work on the server at this address instead of a store. {SERVER_VARIABLE} gives the default."
    token = f"A file with the token for the server. {TOKEN_VARIABLE} may hold the token itself."
    return [
        _option("--server", metavar="URL", help=server, rich_help_panel=PANEL),
        _option("--token-file", metavar="PATH", help=token, rich_help_panel=PANEL),
    ]


# An empty text means something here: of `pipeline run load`, what stands for nothing and that nothing quotes.
MAY_BE_EMPTY = frozenset({"--null", "--quote"})


def _refuse_empty(command: Any, ctx: Any, arguments: list[str]) -> None:
    """Raises when an option is given and says nothing: a variable that a script forgot to set must not mean "all"."""
    if ctx.resilient_parsing:
        return
    given, _, _ = command.make_parser(ctx).parse_args(args=arguments)
    for parameter in command.params:
        said = given.get(parameter.name)
        is_empty = said == "" or (isinstance(said, list | tuple) and "" in said)
        if is_empty and isinstance(parameter, TyperOption) and MAY_BE_EMPTY.isdisjoint(parameter.opts):
            raise Misuse(f"{parameter.opts[0]} is empty; leave it out, or say which is meant")


class Command(TyperCommand):
    """A command with the options that every command takes."""

    takes_server: ClassVar[bool] = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        _refuse_empty(self, ctx, given)
        return rest

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *shared_options()], **about)

    def invoke(self, ctx: Any) -> Any:
        """Run it; a server that was named before its name must mean something to it."""
        if ctx.obj.server and not self.takes_server:
            raise Misuse(
                "this command works on a store; --server is for commands about messages, queues, groups, jobs and flows"
            )
        return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands with the options that every command takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line up to the name of a command."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        _refuse_empty(self, ctx, given)
        return rest

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *shared_options()], **about)


class RemoteCommand(Command):
    """A command that also works on a server."""

    takes_server = True

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *server_options()], **about)


class RemoteGroup(Group):
    """A group of commands that also work on a server."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *server_options()], **about)
