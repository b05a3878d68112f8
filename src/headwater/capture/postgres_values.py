"""Values of PostgreSQL, from the text that the server writes to what JSON has.

Whole numbers, truth, floating point and JSON become their like; so do arrays of these and of texts. Everything else
(numeric, times, uuid, bytea, types of one's own) stays the server's text, in which nothing is lost: a number that
counts money has no floating point. The session's settings fix how it is written.
"""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.errors import SourceUnfit

# ISO dates in UTC, ISO intervals, bytes in hex: the same text whatever the server's own settings are.
SESSION = "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1"


def _float(text: str) -> float | str:
    """JSON has no infinity, and nothing that is not a number: those stay texts."""
    number = float(text)
    return number if math.isfinite(number) else text


_MEMBERS: dict[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    20: int,
    21: int,
    23: int,
    26: int,
    700: _float,
    701: _float,
    # As it was written: what a reader makes of its numbers is the reader's affair.
    114: lambda text: msgspec.Raw(text.encode()),
    3802: lambda text: msgspec.Raw(text.encode()),
}
# Arrays by the type of their members: 25 text, 1043 varchar, 1700 numeric, 2950 uuid, 1114 and 1184 times, 1082 dates.
_ARRAYS = {
    1000: 16,
    1016: 20,
    1005: 21,
    1007: 23,
    1028: 26,
    1021: 700,
    1022: 701,
    199: 114,
    3807: 3802,
    1009: 25,
    1015: 1043,
    1014: 1042,
    1231: 1700,
    2951: 2950,
    1115: 1114,
    1185: 1184,
    1182: 1082,
}


def value_of(value: bytes, type_oid: int) -> Any:
    """A value that is not NULL."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        # A database whose encoding is SQL_ASCII keeps whatever it is given.
        raise SourceUnfit(f"a text of the source is not UTF-8: {value[:80]!r}") from error
    member = _ARRAYS.get(type_oid)
    if member is not None:
        return _array(text, _MEMBERS.get(member, str))
    return _MEMBERS.get(type_oid, str)(text)


def _array(text: str, make: Callable[[str], Any]) -> Any:
    """`{1,NULL,"a b",{2}}` as lists; bounds before it (`[0:1]={…}`) are left out."""
    members = _Members(text[text.index("=") + 1 :] if text.startswith("[") else text, make)
    return members.take()


class _Members:
    """Reads the text of an array from its beginning on."""

    def __init__(self, text: str, make: Callable[[str], Any]) -> None:
        self._text = text
        self._make = make
        self._place = 0

    def take(self) -> list[Any]:
        """The array that begins here."""
        found: list[Any] = []
        self._place += 1
        while self._text[self._place] != "}":
            found.append(self._member())
            if self._text[self._place] == ",":
                self._place += 1
        self._place += 1
        return found

    def _member(self) -> Any:
        here = self._text[self._place]
        if here == "{":
            return self.take()
        if here == '"':
            return self._make(self._quoted())
        begin = self._place
        while self._text[self._place] not in ",}":
            self._place += 1
        word = self._text[begin : self._place]
        return None if word == "NULL" else self._make(word)

    def _quoted(self) -> str:
        letters: list[str] = []
        self._place += 1
        while (letter := self._text[self._place]) != '"':
            if letter == "\\":
                self._place += 1
                letter = self._text[self._place]
            letters.append(letter)
            self._place += 1
        self._place += 1
        return "".join(letters)
