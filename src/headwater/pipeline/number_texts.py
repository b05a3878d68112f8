"""Numbers for which JSON has no spelling: Spark writes them as texts and reads them, and no other text is a number."""

import re
from typing import Literal

NumberText = Literal["NaN", "Infinity", "-Infinity"]

# What msgspec says of a text that is none of these. Schemas have no other texts of which there are only some.
_OTHER_TEXT = re.compile(r"^Invalid enum value (['\"]).*\1(?=$| - at )")


def reason_of(error: Exception) -> str:
    """Why a payload does not fit a schema, for people."""
    return _OTHER_TEXT.sub("Expected a number, got text", str(error))
