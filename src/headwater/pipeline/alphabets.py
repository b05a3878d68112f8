"""Which characters the bytes of a text file mean: UTF-8, or an encoding of one byte a character such as `cp1252`.

Spark puts U+FFFD in the place of bytes that mean nothing, and says no word of it. So a file that is not wholly UTF-8 is
read byte by byte, as ISO 8859-1 has it, where none is lost; what the bytes mean is found here, text by text.
"""

import codecs
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from headwater.errors import SourceUnfit

UTF_8 = "utf-8"
BYTES = "ISO-8859-1"
MARK = "\ufeff"
_UNDEFINED = "character maps to <undefined>"
_ASCII = range(128)


class Alphabet(NamedTuple):
    """An encoding of one byte a character: which differ from ISO 8859-1, what they mean, and which mean nothing."""

    name: str
    came: str
    meant: str
    undefined: str

    def is_fit(self, text: Column) -> Column:
        """Whether all of a text that was read byte by byte means something."""
        return ~text.rlike(f"[{self.undefined}]") if self.undefined else f.lit(True)

    def decode(self, text: Column) -> Column:
        """What it means."""
        return f.translate(text, self.came, self.meant) if self.came else text


class Utf8(NamedTuple):
    """The same of UTF-8."""

    name: str = "UTF-8"

    def is_fit(self, text: Column) -> Column:
        """Whether all of a text that was read byte by byte is UTF-8."""
        return f.is_valid_utf8(_bytes(text))

    def decode(self, text: Column) -> Column:
        """What it means, with U+FFFD for what means nothing."""
        return f.make_valid_utf8(_bytes(text))


def _bytes(text: Column) -> Column:
    return f.encode(text, BYTES).cast("string")


def find_alphabet(name: str) -> Alphabet | Utf8:
    """The encoding of a name; raises unless it is UTF-8, or has one byte a character and begins with ASCII."""
    try:
        known = codecs.lookup(name).name
        if known in (UTF_8, "utf-8-sig"):
            return Utf8()
        meanings = {chr(byte): _meaning(byte, known) for byte in range(256)}
    except (LookupError, UnicodeError) as error:
        raise _unfit(name) from error
    if any(meanings[chr(byte)] != chr(byte) for byte in _ASCII):
        raise _unfit(name)
    other = {byte: meaning for byte, meaning in meanings.items() if meaning and meaning != byte}
    undefined = "".join(byte for byte, meaning in meanings.items() if not meaning)
    return Alphabet(name, "".join(other), "".join(other.values()), undefined)


def _meaning(byte: int, encoding: str) -> str:
    """The character of a byte, '' where it is none."""
    try:
        return bytes([byte]).decode(encoding)
    except UnicodeDecodeError as error:
        if error.reason == _UNDEFINED:
            return ""
        raise


def _unfit(name: str) -> SourceUnfit:
    return SourceUnfit(
        f"an encoding is utf-8, or one with one byte a character such as latin-1, cp1252 or iso-8859-15; got {name!r}: "
        "turn the file into UTF-8 first (iconv -f … -t utf-8)"
    )


def decode_name(alphabet: Alphabet | Utf8, text: str) -> str:
    """The name of a column that was read byte by byte, without the mark that a file of UTF-8 may begin with."""
    encoding = UTF_8 if isinstance(alphabet, Utf8) else alphabet.name
    return text.encode(BYTES).removeprefix(codecs.BOM_UTF8).decode(encoding).removeprefix(MARK)
