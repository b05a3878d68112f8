"""Commands that an operator allows by name: a list of arguments with typed places, never a text for a shell.

A value fills a place inside one argument and can neither add another nor begin one that looks like an option.
"""

import re
from collections.abc import Mapping, Set
from typing import Annotated, Any, Literal

import msgspec

from headwater.errors import ConfigError, InvalidInput, InvalidOption
from headwater.model.names import check_name

TEXT_LENGTH_MAX = 1_000
_place = re.compile(r"\{([a-z][a-z0-9_]*)\}")
# What somebody may have meant as a place: words in braces. Other braces are the program's own.
_like_a_place = re.compile(r"\{[\w\s.:-]+\}")


class Parameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may stand in a place.

    `text` is printable, of `length_max` characters; `name` has letters, digits and `. _ : / -`; `choice` is one of
    `choices`; `integer` and `number` lie between `minimum` and `maximum`.
    """

    type: Literal["text", "name", "choice", "integer", "number"] = "text"
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    length_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = TEXT_LENGTH_MAX
    default: str | int | float | None = None

    def text_of(self, name: str, value: object) -> str:
        """A value as it stands in the argument; InvalidOption when it does not fit."""
        if self.type in ("integer", "number"):
            return self._number(name, value)
        if not isinstance(value, str):
            raise InvalidOption(f"{name} must be a text; got {value!r:.80}")
        if self.type == "choice":
            if value not in self.choices:
                raise InvalidOption(f"{name} must be one of {', '.join(self.choices)}; got {value!r:.80}")
        elif self.type == "name":
            check_name(name, value)
        elif not value.isprintable() or len(value) > self.length_max:
            raise InvalidOption(f"{name} must be at most {self.length_max:,} printable characters; got {value!r:.80}")
        return value

    def _number(self, name: str, value: Any) -> str:
        kinds = (int,) if self.type == "integer" else (int, float)
        low = "-inf" if self.minimum is None else f"{self.minimum:g}"
        high = "inf" if self.maximum is None else f"{self.maximum:g}"
        if type(value) not in kinds or not float(low) <= value <= float(high):
            wanted = "an integer" if self.type == "integer" else "a number"
            raise InvalidOption(f"{name} must be {wanted} from {low} to {high}; got {value!r:.80}")
        return repr(value)


class CommandTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command with places in it, `{name}`, each of a parameter. What else is set holds for every job made of it."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=1_000)]
    parameters: dict[str, Parameter] = {}
    queue: str = ""
    cwd: str = ""
    env: dict[str, str] = {}
    timeout: float | None = None

    def check(self) -> None:
        """Raises ConfigError when it can never be filled."""
        places = {name for argument in self.argv for name in _place.findall(argument)}
        if _place.search(self.argv[0]):
            raise ConfigError("the program itself, the first of argv, cannot be a place")
        for place in (one for argument in self.argv for one in _like_a_place.findall(argument)):
            if not _place.fullmatch(place):
                raise ConfigError(f"{place} is no place: it is written like {{width}}, in small letters, digits and _")
        if places != set(self.parameters):
            odd = ", ".join(sorted(places ^ set(self.parameters)))
            raise ConfigError(f"each place of argv needs a parameter, and each parameter a place: {odd}")
        for name, parameter in self.parameters.items():
            if (parameter.type == "choice") != bool(parameter.choices):
                raise ConfigError(f"parameter {name}: a choice needs choices, and nothing else has any")

    def fill(self, values: Mapping[str, object]) -> tuple[str, ...]:
        """The arguments with these values in their places; InvalidOption when one is missing, unknown or unfit."""
        unknown = sorted(set(values) - set(self.parameters))
        if unknown:
            raise InvalidOption(f"no such parameter: {', '.join(unknown)}; there are {', '.join(self.parameters)}")
        texts = {}
        for name, parameter in self.parameters.items():
            value = values.get(name, parameter.default)
            if value is None:
                raise InvalidOption(f"parameter {name} is missing")
            texts[name] = parameter.text_of(name, value)
        # An operator who lets a number be negative has thought of its sign.
        signed = {name for name, parameter in self.parameters.items() if (parameter.minimum or 0) < 0}
        return tuple(_fill(argument, texts, signed) for argument in self.argv)


def _fill(argument: str, texts: Mapping[str, str], signed: Set[str]) -> str:
    filled = _place.sub(lambda place: texts[place[1]], argument)
    first = _place.match(argument)
    if first is not None and filled.startswith("-") and first[1] not in signed:
        raise InvalidOption(f"{first[1]} may not begin with -, or it would be taken for an option; got {filled!r:.80}")
    return filled


def read_templates(text: bytes) -> dict[str, CommandTemplate]:
    """The templates of a file, by name; ConfigError says which one is wrong and why."""
    try:
        found = msgspec.json.decode(text, type=dict[str, CommandTemplate])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"command templates are a JSON object, of objects with argv and parameters: {error}"
        ) from error
    for name, template in found.items():
        try:
            check_name("command", name)
            template.check()
        except (ConfigError, InvalidInput) as error:
            raise ConfigError(f"command template {name!r:.80}: {error}") from error
    return found
