"""How values are written as text, as JSON and in CSV files, so that they are the same values when they are read again.

Spark's own formats cut times to thousandths of a second, in silence; these have all six digits. Times are written in
UTC: in other zones some have offsets with seconds (`-04:56:02`), or lie in the year 10000, and few programs read those.
"""

from pyspark.sql import Column
from pyspark.sql import functions as f

TIME_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timeZone": "UTC",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def json_of(fields: Column, *, nulls: bool = False) -> Column:
    """A struct as JSON text. With `nulls` fields that are null are written too; without, the session's settings say."""
    return f.to_json(fields, {**TIME_OPTIONS, **({"ignoreNullFields": "false"} if nulls else {})})
