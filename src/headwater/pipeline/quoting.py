"""Whether the quotes of a row of CSV are right: each that is opened is closed, and those within are written twice.

Spark takes a quote that is not closed for the beginning of a text that goes on to the next quote, or to the end of the
file: the rows in between are none any more. So what it took for a row is looked at once more, as it stands.
"""

from pyspark.sql import Column
from pyspark.sql import functions as f

UNCLOSED = "a quote is not closed"
UNDOUBLED = "a quote within quotes is not written twice"


def find_complaint(line: Column, quote: str, delimiter: str) -> Column:
    """What is wrong with the quotes of a row, or of a line; null when nothing is."""
    mark, between = _literal(quote), _literal(delimiter)
    begins = rf"(\A[\r\n]*|{between})"
    single = f.replace(line, f.lit(quote * 2), f.lit(""))
    # What is left when all texts in quotes are taken out has none at the beginning of a text.
    bare = f.regexp_replace(single, rf"{begins}{mark}[^{mark}]*{mark}(?={between}|[\r\n]*\z)", "$1")
    odd = (f.length(single) - f.length(f.replace(single, f.lit(quote), f.lit("")))) % 2 == 1
    lines = f.regexp_count(f.rtrim(line, f.lit("\r\n")), f.lit(r"\r\n|\r|\n")) + 1
    unclosed = f.when(lines == 1, f.lit(UNCLOSED)).otherwise(
        f.concat(f.lit(f"{UNCLOSED}: the row takes "), lines.cast("string"), f.lit(" lines"))
    )
    return f.when(bare.rlike(f"{begins}{mark}"), f.when(odd, unclosed).otherwise(f.lit(UNDOUBLED)))


def _literal(text: str) -> str:
    """A character as patterns have it; that of a tab is one already."""
    return text if text.isalnum() or len(text) > 1 else f"\\{text}"
