"""The options of `serve` about access, and the rule that nobody is let in unasked.

They are added to the command here and not in the signature of its function: each is one setting of `AccessSettings`
under its own name, and a variable `HEADWATER_<NAME>` gives its default.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperOption

from headwater.cli.settings import Command
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.doors.access.settings import AccessSettings

PANEL = "Access"
KEPT_UNDER = "headwater.access"
# Setting, what stands for its value in the help, and the help. Lists are written with commas. No secrets.
OPTIONS = (
    ("auth", "KINDS", "What callers prove who they are with: none, token, jwt, or token,jwt. Default: none."),
    ("allowed_hosts", "NAMES", "Names this server answers to, besides localhost."),
    ("allowed_origins", "ORIGINS", "Origins of pages that may use this server, besides its own."),
    ("requests_per_second", "N", "Requests from one caller; 0, the default, is without limit."),
    ("jwt_algorithms", "NAMES", "HS256, RS256, EdDSA: those that are taken."),
    ("jwt_keys_file", "FILE", "A JWKS, or a public key as PEM; read again when it changes."),
    ("jwt_secret_file", "FILE", "The secret of HS256."),
    ("jwt_audience", "NAMES", "What a token's aud must name."),
    ("jwt_issuer", "NAME", "What a token's iss must be."),
)


class NotLoopback(ConfigError):
    """Others could connect, and nothing would ask them who they are."""

    code: ClassVar[str] = "not_loopback"


class ServeCommand(Command):
    """A command with the options about access."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **about: Any) -> None:
        super().__init__(*arguments, params=[*(params or []), *(_option(*option) for option in OPTIONS)], **about)


def _option(setting: str, metavar: str, text: str) -> TyperOption:
    name = f"--{setting.replace('_', '-')}"
    about: dict[str, Any] = {"metavar": metavar, "help": text, "rich_help_panel": PANEL}
    return TyperOption(param_decls=[name, setting], callback=_remember, expose_value=False, **about)


def _remember(ctx: typer.Context, parameter: TyperOption, value: str | None) -> None:
    if value is not None and parameter.name:
        ctx.meta.setdefault(KEPT_UNDER, {})[parameter.name] = value


def access_of(ctx: typer.Context) -> "AccessSettings":
    """The settings about access of the command that runs."""
    from headwater.doors.access.settings import load_access

    return load_access(**ctx.meta.get(KEPT_UNDER, {}))


def check_bind(host: str, access: "AccessSettings") -> None:
    """Raises when others could connect and nobody would ask them who they are."""
    from headwater.doors.hosts import ANY_NAME, is_loopback

    if not access.auth and ANY_NAME in access.allowed_hosts:
        raise ConfigError(
            "allowed_hosts is *, and there is no authentication: any page could reach this server under a name of its "
            "own; name the hosts, or say --auth token"
        )
    if not access.auth and not is_loopback(host):
        raise NotLoopback(
            f"refusing to listen at {host}: there is no authentication, so anybody could connect; "
            "say --auth token, or listen at 127.0.0.1"
        )
