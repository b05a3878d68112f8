"""Make, list and revoke access tokens for programs that use a server.

A token belongs to one database (--database), allows what its scopes say, and only for the queues that its patterns
name. Its text is shown once, when it is made; the store keeps a digest of it.

Examples:
  headwater token create billing --scope consume --queue 'orders.*'
  headwater token list
  headwater token revoke 3f9a2c1d77b0
"""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command, line, table
from headwater.cli.exits import Misuse
from headwater.cli.output import iso_time, note, print_line
from headwater.cli.session import opened
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.clock import Timestamp
    from headwater.model.access_token import AccessToken

UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}


@command
async def create_token(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="What the token is for.", metavar="NAME", show_default=False)],
    scopes: Annotated[
        list[str],
        typer.Option(
            "--scope", help="publish, consume, subscribe, metrics, admin, jobs:submit; once for each.", metavar="SCOPE"
        ),
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="A queue, or a pattern with *; once for each. All unless said.", metavar="PATTERN"
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option(help="How long it is good: 90s, 30min, 12h, 30d.", metavar="TIME", show_default="for good")
    ] = "",
) -> Result:
    """Make an access token and show it, this once.

    Its name is kept with the messages that are pushed with it, and consumers see it. The text of the token is the only
    thing on standard output, so a script can keep it.

    Examples:
      headwater token create billing --scope consume --queue 'orders.*'
      TOKEN=$(headwater token create ci --scope publish --expires 30d)
    """
    from headwater.model.names import check_name
    from headwater.services.access_tokens import check_patterns, check_scopes

    # Before the store is opened, which may make it: what makes no sense leaves no trace.
    seconds, patterns = parse_lifetime(expires), queues or ["*"]
    check_name("token", name)
    check_scopes(scopes)
    check_patterns(patterns)
    async with opened(settings, create=True) as hw:
        token, text = await hw.access_tokens().create(name, scopes, queues=patterns, lifetime_seconds=seconds)

    def show() -> None:
        print_line((text, ""))
        allows = f"{', '.join(token.scopes)} for {', '.join(token.queues)} in {token.database}"
        note(f"{token.id}: {allows}; it is not shown again")

    return Result([{**token_document(token), "token": text}], show)


@command
async def list_tokens(settings: Settings) -> Result:
    """List the access tokens of a database: what each allows, and whether it is still good.

    Examples:
      headwater token list
      headwater token list --database tenant --json
    """
    from headwater.clock import SystemClock

    async with opened(settings) as hw:
        found = await hw.access_tokens().list()
    now = SystemClock().now()

    def row(token: "AccessToken") -> tuple[object, ...]:
        allows = (" ".join(token.scopes), " ".join(token.queues))
        times = (iso_time(token.created_at), iso_time(token.expires_at))
        return (token.id, token.name, *allows, *times, state_of(token, now))

    columns = ("ID", "NAME", "SCOPES", "QUEUES", "CREATED", "EXPIRES", "STATE")
    return table(found, token_document, columns, row, empty="there are no access tokens yet")


@command
async def revoke_token(
    settings: Settings,
    token: Annotated[str, typer.Argument(help="The id of the token.", metavar="ID", show_default=False)],
) -> Result:
    """Revoke an access token: from now on no server takes it.

    Examples:
      headwater token revoke 3f9a2c1d77b0
    """
    if token.startswith("hw_"):
        raise Misuse("a token is revoked by its id, which token list shows; its text should not be on a command line")
    async with opened(settings) as hw:
        await hw.access_tokens().revoke(token)
    return line({"id": token, "revoked": True}, (token, "cyan"), (" is revoked", ""))


def parse_lifetime(text: str) -> float | None:
    """`30d` in seconds; None for good."""
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,9}) ?(s|min|h|d)", text, re.ASCII)
    if not found:
        raise Misuse(f"a time is written like 90s, 30min, 12h or 30d; got {text[:80]!r}")
    return float(found[1]) * UNITS[found[2]]


def state_of(token: "AccessToken", now: "Timestamp") -> str:
    """What a token is worth now."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and now >= token.expires_at else "good"


def token_document(token: "AccessToken") -> dict[str, object]:
    """A token for programs, without what it is checked by."""
    return {
        "id": token.id,
        "name": token.name,
        "database": token.database,
        "scopes": list(token.scopes),
        "queues": list(token.queues),
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at),
        "revoked_at": iso_time(token.revoked_at),
    }
