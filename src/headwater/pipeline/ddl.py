"""Schemas as people write them, looked over before Spark reads them: what is wrong is said in words of theirs.

Spark itself reads the text and has the last word. Where a format is asked for its columns it reads ours and theirs
together, and would tell of a place in a text that nobody has seen.
"""

import re
from collections import Counter
from collections.abc import Iterator

TYPES = (
    *("ARRAY", "BIGINT", "BINARY", "BOOLEAN", "BYTE", "DATE", "DEC", "DECIMAL", "DOUBLE", "FLOAT", "INT", "INTEGER"),
    *("INTERVAL", "LONG", "MAP", "NUMERIC", "REAL", "SHORT", "SMALLINT", "STRING", "STRUCT", "TIME", "TIMESTAMP"),
    *("TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TINYINT", "VARIANT", "VOID"),
)
TEXTS = ("CHAR", "CHARACTER", "VARCHAR")
ONE = "a schema is written like id BIGINT NOT NULL, tags ARRAY<STRING>, address STRUCT<city: STRING>"

_FIELD = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s:`<>(),]+))\s*:?\s*(?P<type>\S.*)?", re.DOTALL)
_REQUIRED = re.compile(
    r"(?<=[\s>)])NOT\s+NULL(?=(?:\s+COMMENT\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))?\s*$)",
    re.DOTALL | re.IGNORECASE,
)
_TYPE = re.compile(r"(?P<word>[A-Za-z_][\w]*)\s*(?:<(?P<inner>.*)>)?", re.DOTALL)
_PIECE = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|.", re.DOTALL)


def complaint_of(schema: str) -> str:
    """What is wrong with a schema, as far as that is seen without Spark; empty when nothing is."""
    return next(_complaints(schema, ""), "")


def _complaints(schema: str, within: str) -> Iterator[str]:
    names = []
    for part in split_at_commas(schema):
        found = _FIELD.fullmatch(part)
        if found is None:
            yield f"{part.strip()!r:.80} is no name and type; {ONE}"
            continue
        name = within + (found["quoted"] or found["plain"])
        names.append(name)
        if not found["type"]:
            yield f"{name} has no type; {ONE}"
        else:
            yield from _complaints_of_type(found["type"], name)
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{name} stands there {count} times; a field has one name and one type"


def _complaints_of_type(kind: str, name: str) -> Iterator[str]:
    found = _TYPE.match(kind)
    word = found["word"].upper() if found else kind[:80]
    if word in TEXTS:
        yield f"{name} is a {word}, which JSON does not have: a text is a STRING"
    elif word not in TYPES:
        yield f"{name} is a {word}, which is no type; there are {', '.join(TYPES)}"
    elif found and found["inner"] and word == "STRUCT":
        yield from _complaints(found["inner"], f"{name}.")
    elif found and found["inner"]:
        for part in split_at_commas(found["inner"]):
            yield from _complaints_of_type(part.strip(), f"what is in {name}")


def required_fields(schema: str) -> frozenset[str]:
    """The names of the fields that must be there; not those of structs within.

    >>> sorted(required_fields("a INT NOT NULL, `b c` STRUCT<d: INT> NOT NULL COMMENT 'e', f STRUCT<g: INT NOT NULL>"))
    ['a', 'b c']
    """
    found = (_FIELD.fullmatch(part) for part in split_at_commas(schema) if _REQUIRED.search(part))
    return frozenset((field["quoted"] or field["plain"]).replace("``", "`") for field in found if field)


def without_required(schema: str) -> str:
    """The schema with every field one that may be absent; those of structs within stay as they are.

    >>> without_required("a INT NOT NULL, f STRUCT<g: INT NOT NULL>")
    'a INT , f STRUCT<g: INT NOT NULL>'
    """
    return ",".join(_REQUIRED.sub("", part) for part in split_at_commas(schema))


def split_at_commas(text: str) -> list[str]:
    """The parts of a text between commas that stand in no brackets and no quotes.

    >>> split_at_commas("a INT, b DECIMAL(5, 2), c STRUCT<d: INT, `e,f`: INT>")
    ['a INT', ' b DECIMAL(5, 2)', ' c STRUCT<d: INT, `e,f`: INT>']
    """
    parts = [""]
    depth = 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
