"""Access rules of documents: who may read, make, change and delete which of them.

A rule fits collections by a pattern and says for each thing that can be done the condition under which it may be, in
the language of filters, with what is known of who asks as auth. Tokens with the scope admin are held to no rule.

Examples:
  headwater rules set rules.json
  headwater rules list
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command, line, table
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.model.document_rules import DocumentRule


@command
async def set_rules(
    settings: Settings,
    file: Annotated[
        Path, typer.Argument(help="A JSON file with a list of rules.", metavar="FILE", exists=True, dir_okay=False)
    ],
) -> Result:
    """Have the rules of a file, in place of those that there are; an empty list is none.

    The file has a list of objects with pattern, and read, create, update and delete, each a condition. What no rule
    that fits a collection allows there is not allowed. Servers go by it within a second.

    Examples:
      headwater rules set rules.json
    """
    rules = read_rules(file)
    async with reached(settings, create=True) as hw:
        count = await hw.set_document_rules(rules)
    return line({"rules": count}, (str(count), "cyan"), (" access rules hold now", ""))


@command
async def list_rules(settings: Settings) -> Result:
    """List the access rules of a database.

    Examples:
      headwater rules list
      headwater rules list --json
    """
    async with reached(settings) as hw:
        found = await hw.document_rules()

    def row(rule: "DocumentRule") -> tuple[object, ...]:
        return (rule.pattern, rule.read, rule.create, rule.update, rule.delete)

    columns = ("PATTERN", "READ", "CREATE", "UPDATE", "DELETE")
    return table(
        found, rule_document, columns, row, empty="there are no access rules: scopes and patterns alone decide"
    )


def read_rules(file: Path) -> "list[DocumentRule]":
    """The rules in a file; raises when they are none."""
    import msgspec

    from headwater.errors import InvalidOption
    from headwater.model.document_rules import DocumentRule

    try:
        return msgspec.json.decode(file.read_bytes(), type=list[DocumentRule])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{file.name} is no list of access rules: {error}") from error


def rule_document(rule: "DocumentRule") -> dict[str, object]:
    """A rule for programs."""
    import msgspec

    return msgspec.structs.asdict(rule)
