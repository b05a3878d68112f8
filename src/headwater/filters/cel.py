"""The text form of filters: a part of CEL, the Common Expression Language.

    condition  = all { "||" all }          all = relation { "&&" relation }
    relation   = side [ ("==" | "!=" | "<" | "<=" | ">" | ">=" | "in") side ]
    side       = "!" side | "(" condition ")" | "has" "(" path ")" | path [ "." method "(" side ")" ] | literal | list
    path       = name { "." name | "[" text "]" }

A path begins with a field of the document; `doc.` before it changes nothing, and `auth.` makes it a claim of who asks.
It is read once from left to right: time and memory are bounded by the length of the text, which is bounded itself.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from headwater.filters.leaves import COMPARISONS, Side, as_condition, as_side, compare, contains, is_in, starts_with
from headwater.filters.tree import (
    DEPTH_MAX,
    TEXT_LENGTH_MAX,
    And,
    Claim,
    Expression,
    Field,
    Or,
    Present,
    Scalar,
    Subject,
    check_list,
    check_path,
    check_scalar,
    check_size,
    join,
    opposite,
    refuse,
    refuse_size,
)

_token = re.compile(
    r"""
      (?P<space> \s+ )
    | (?P<number> \d+ (?: \.\d+ )? (?: [eE][+-]?\d{1,4} )? )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<text> "(?: [^"\\\n] | \\. )*" | '(?: [^'\\\n] | \\. )*' )
    | (?P<sign> == | != | <= | >= | && | \|\| | [<>!()\[\],.-] )
    """,
    re.VERBOSE | re.ASCII,
)
_escape = re.compile(r"\\(?:([abfnrtv\\?\"'`])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.DOTALL)
_plain_escapes = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))
_constants: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_methods = {"contains": contains, "startsWith": starts_with}
DIGITS_MAX = 50
TEXTS_KNOWN_MAX = 512
END = ""


class Token(NamedTuple):
    """A piece of the text, and where it begins."""

    kind: str
    text: str
    position: int


@lru_cache(TEXTS_KNOWN_MAX)
def parse(text: str) -> Expression:
    """The expression that a text in the filter language means.

    >>> parse('state == "open" && (size > 10 || "urgent" in labels)')

    Raises InvalidFilter or FilterTooLarge, with the position at which it goes wrong. The last texts are known: one is
    asked for where it is handed in, where it is used, and by all who follow the same documents.
    """
    if len(text) > TEXT_LENGTH_MAX:
        refuse_size(TEXT_LENGTH_MAX, f"a filter has up to {TEXT_LENGTH_MAX:,} characters; got {len(text):,}")
    return check_size(_Parser(text).whole())


def tokens_of(text: str) -> list[Token]:
    """The pieces of a text; the last one is empty."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _token.match(text, position)
        if match is None:
            refuse(position, f"a filter has no {text[position]!r} here")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match[0], position))
        position = match.end()
    found.append(Token("end", END, len(text)))
    return found


class _Parser:
    """Goes through the pieces once; every method takes what it understands."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._place = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self, *signs: str) -> Token | None:
        """The next piece when it is one of these."""
        token = self._next
        if token.text not in signs or token.kind == "text":
            return None
        self._place += 1
        return token

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            refuse(self._next.position, f"expected {sign!r}, got {self._next.text[:20]!r}")

    def _advance(self) -> Token:
        self._place += 1
        return self._tokens[self._place - 1]

    def whole(self) -> Expression:
        """The condition that the text is, to its end."""
        found = self._condition()
        if self._next.kind != "end":
            refuse(self._next.position, f"expected the end, `&&` or `||`, got {self._next.text[:20]!r}")
        return found

    def _condition(self) -> Expression:
        parts = [self._all()]
        while self._take("||"):
            parts.append(self._all())
        return join(Or, parts)

    def _all(self) -> Expression:
        parts = [self._relation()]
        while self._take("&&"):
            parts.append(self._relation())
        return join(And, parts)

    def _relation(self) -> Expression:
        position = self._next.position
        left = self._side()
        token = self._take(*COMPARISONS, "in")
        if token is None:
            return as_condition(left, position)
        right = self._side()
        sides = as_side(left, token.position), as_side(right, token.position)
        if token.text == "in":
            return is_in(*sides, token.position)
        return compare(sides[0], token.text, sides[1], token.position)

    def _side(self) -> "Side | Expression":
        token = self._next
        if self._take("!"):
            self._deeper(token)
            found = opposite(as_condition(self._side(), token.position))
            self._depth -= 1
            return found
        if self._take("("):
            self._deeper(token)
            inside = self._condition()
            self._expect(")")
            self._depth -= 1
            return inside
        if self._take("["):
            return self._list(token.position)
        if token.kind == "name" and token.text not in _constants:
            return self._named()
        return self._literal()

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            refuse_size(token.position, f"a filter may be {DEPTH_MAX} deep")

    def _list(self, position: int) -> tuple[Scalar, ...]:
        values: list[object] = []
        while not self._take("]"):
            if values:
                self._expect(",")
            values.append(self._literal())
        return check_list(values, position)

    def _literal(self) -> Scalar:
        token = self._advance()
        if token.text == "-" and self._next.kind == "number":
            return check_scalar(-_number(self._advance()), token.position)
        if token.kind == "number":
            return check_scalar(_number(token), token.position)
        if token.kind == "text":
            return check_scalar(_unescaped(token), token.position)
        if token.text not in _constants:
            refuse(token.position, f"expected a field or a value, got {token.text[:20] or 'the end'!r}")
        return _constants[token.text]

    def _named(self) -> "Side | Expression":
        token = self._advance()
        if self._take("("):
            return self._call(token)
        path = [token.text]
        while sign := self._take(".", "["):
            if sign.text == "[":
                path.append(self._index())
                continue
            name = self._advance()
            if name.kind != "name":
                refuse(name.position, "expected the name of a field after the dot")
            if self._take("("):
                return self._method(_subject(path, token.position), name)
            path.append(name.text)
        return _subject(path, token.position)

    def _index(self) -> str:
        token = self._advance()
        if token.kind != "text":
            refuse(token.position, "expected the name of a field in quotes")
        self._expect("]")
        return _unescaped(token)

    def _call(self, token: Token) -> Expression:
        if token.text != "has":
            refuse(token.position, f"there is no function {token.text[:40]!r}; there is has")
        position = self._next.position
        subject = self._named() if self._next.kind == "name" else None
        if not isinstance(subject, Field | Claim):
            refuse(position, "has takes a field")
        self._expect(")")
        return Present(subject)

    def _method(self, subject: Subject, name: Token) -> Expression:
        method = _methods.get(name.text)
        if method is None:
            refuse(name.position, f"there is no method {name.text[:40]!r}; there are {', '.join(_methods)}")
        position = self._next.position
        value = as_side(self._side(), position)
        self._expect(")")
        return method(subject, value, position)


def _subject(path: list[str], position: int) -> Subject:
    if path[0] == "auth":
        return Claim(check_path(tuple(path[1:]), position))
    return Field(check_path(tuple(path[1:] if path[0] == "doc" else path), position))


def _number(token: Token) -> int | float:
    if len(token.text) > DIGITS_MAX:
        refuse_size(token.position, f"a number has up to {DIGITS_MAX} characters")
    return int(token.text) if token.text.isdigit() else float(token.text)


def _unescaped(token: Token) -> str:
    def character(match: re.Match[str]) -> str:
        plain, *codes, unknown = match.groups()
        if plain:
            return _plain_escapes[plain]
        code = int(next((one for one in codes if one), "110000"), 16)
        if unknown is not None or code > 0x10FFFF:
            refuse(token.position + 1 + match.start(), f"a text has no escape {match[0][:12]!r}")
        return chr(code)

    return _escape.sub(character, token.text[1:-1])
