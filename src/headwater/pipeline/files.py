"""Files as rows of JSON payloads: Parquet, CSV and NDJSON, each row with a position that is the same at every reading.

rows: position BIGINT, value STRING (JSON, or the text that is none), reason STRING (why it cannot be a payload)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from headwater.errors import SourceUnfit
from headwater.pipeline.alphabets import BYTES, UTF_8, Alphabet, Utf8, decode_name, find_alphabet
from headwater.pipeline.quoting import find_complaint
from headwater.pipeline.spelling import json_of

ENDINGS = {".parquet": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson"}
FORMATS = ("parquet", "csv", "ndjson")
SPLIT_BYTES = 32 * 1_048_576
BROKEN, BEYOND, STRANGE = "_broken", "_beyond", "_strange"
# Spark's writer takes blanks from both ends of texts unless it is told not to.
CSV_OPTIONS = {
    "header": "true",
    "escape": '"',
    "encoding": "UTF-8",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
TAB = "\\t"
NO_QUOTE = "\0"
# What Spark takes for infinite in lower case.
INFINITE = "^[+-]?inf(inity)?$"

# A time without a zone is one of UTC, whatever the session of a cluster says.
_ZONE = {"spark.sql.session.timeZone": "UTC"}
# How a file is cut decides how its rows are numbered. It must not depend on the machine that reads it.
_CUTS = {
    "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.minPartitionNum": "1",
    # A row has too few columns or too many whichever of them are asked for.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    **_ZONE,
}


class CsvStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How CSV files are written: in which encoding, what stands between and around texts, for null, days and times.

    `nulls` are texts that mean that there is no value. Days and times are patterns such as `dd.MM.yyyy`; no pattern
    takes those of ISO 8601. Without a header the columns have the schema's names, or `column_1` and so on.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    nulls: tuple[str, ...] = ()
    date_format: str = ""
    time_format: str = ""
    encoding: str = UTF_8

    @property
    def cuts(self) -> str:
        """What decides where rows begin, in a word; nothing for the usual. Read otherwise, it is another file."""
        usual = CsvStyle()
        mine, theirs = (self.delimiter, self.quote, self.header), (usual.delimiter, usual.quote, usual.header)
        return "" if mine == theirs else f"csv {self.delimiter!r} {self.quote!r} {int(self.header)}"


PLAIN_CSV = CsvStyle()


class CsvReading(NamedTuple):
    """How Spark is to read a CSV file: options, an alphabet where it does so byte by byte, whether quotes are odd."""

    options: dict[str, str]
    alphabet: Alphabet | Utf8 | None
    is_odd: bool


def check_style(spark: SparkSession, style: CsvStyle, schema: spark_types.StructType | None) -> None:
    """Raises unless files can be written like this, and each pattern has a column of the schema that it is for."""
    if style.delimiter != TAB and (len(style.delimiter) != 1 or style.delimiter in "\r\n\0"):
        raise SourceUnfit(f"a delimiter is one character, or {TAB} for a tab; got {style.delimiter!r}")
    if len(style.quote) > 1 or style.quote in ("\r", "\n", style.delimiter):
        raise SourceUnfit(f"a quote is one character other than the delimiter, or nothing; got {style.quote!r}")
    find_alphabet(style.encoding)
    kinds = {field.dataType.typeName() for field in schema.fields} if schema else set()
    for option, pattern, wanted in (
        ("--date-format", style.date_format, {"date"}),
        ("--time-format", style.time_format, {"timestamp", "timestamp_ntz"}),
    ):
        if pattern and not kinds & wanted:
            raise SourceUnfit(f"{option} is for columns of type {' or '.join(sorted(wanted))}; the schema has none")
        if pattern:
            _check_pattern(spark, option, pattern)


def _check_pattern(spark: SparkSession, option: str, pattern: str) -> None:
    try:
        spark.range(1).select(f.try_to_timestamp(f.lit("2026"), f.lit(pattern))).collect()
    except Exception as error:
        raise SourceUnfit(f"{option} {pattern!r} is no pattern; one is dd.MM.yyyy or yyyy-MM-dd HH:mm") from error


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files that are meant; a folder stands for the files in it, in order of their names."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found.extend(sorted(inner for inner in path.iterdir() if inner.is_file() and inner.name[0] not in "._"))
        elif path.is_file():
            found.append(path)
        else:
            raise SourceUnfit(f"{path} is no file")
    if not found:
        raise SourceUnfit(f"there is no file in {', '.join(paths)}")
    return found


def format_of(path: Path, wanted: str) -> str:
    """The format that was asked for, or the one that the name tells."""
    if wanted:
        return check_format(wanted)
    name = path.name.removesuffix(".gz")
    known = next((ENDINGS[ending] for ending in ENDINGS if name.endswith(ending)), None)
    if name.endswith(".zip"):
        raise SourceUnfit(
            f"{path.name} is a zip file: unpack it first; compressed with gzip (.gz) it can stay as it is"
        )
    if known is None:
        raise SourceUnfit(f"the name {path.name} does not tell a format: say --format {', '.join(FORMATS)}")
    return known


def check_format(name: str) -> str:
    """The name itself when it is a format."""
    if name not in FORMATS:
        raise SourceUnfit(f"format must be {', '.join(FORMATS)}; got {name!r}")
    return name


def read_file(
    spark: SparkSession,
    path: Path,
    kind: str,
    schema: spark_types.StructType | None,
    style: CsvStyle = PLAIN_CSV,
) -> DataFrame:
    """The rows of one file, whatever is in them; a file whose columns are not those of the schema is refused.

    They are numbered the same at every reading inside `cut_alike`.
    """
    place = glob_free(path.absolute())
    if kind == "csv":
        return _csv(spark, place, path, schema, style)
    rows = _lines(spark.read.text(place)) if kind == "ndjson" else _parquet(spark, place, path, schema)
    return rows.select(f.monotonically_increasing_id().alias("position"), "value", "reason")


def glob_free(path: Path) -> str:
    """A path as Spark takes it, in which nothing stands for anything else."""
    return "".join(f"\\{letter}" if letter in "\\*?[]{}" else letter for letter in str(path))


def plain_place(path: Path) -> str:
    """A path as Spark takes it to write to, or for a checkpoint: of this machine, whatever the cluster's file system.

    It looks like a URL and is none: Spark takes every character for itself, so `%20` would be another folder.
    """
    return f"file://{path.absolute()}"


def cut_alike(spark: SparkSession) -> AbstractContextManager[None]:
    """Cut files at the same places, and read their times alike, whatever the machine."""
    return _setting(spark, _CUTS)


def plain_times(spark: SparkSession) -> AbstractContextManager[None]:
    """Write times as everybody does: in UTC, into Parquet with their bounds for who looks for a span of time."""
    return _setting(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", **_ZONE})


@contextmanager
def _setting(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Some settings of a session for a while: Spark looks at these when a plan is run."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _lines(lines: DataFrame) -> DataFrame:
    reason = f.when(~f.is_valid_utf8("value"), f.lit("the line is not UTF-8"))
    filled = lines.where(f.length(f.trim("value")) > 0)
    return filled.select(f.make_valid_utf8("value").alias("value"), reason.alias("reason"))


def _csv(
    spark: SparkSession, place: str, path: Path, schema: spark_types.StructType | None, style: CsvStyle
) -> DataFrame:
    reading = _look_through(spark, place, path, style)
    names = _csv_names(spark, place, path, schema, style, reading)
    wanted = schema or _texts(names)
    check_columns(path, names, wanted.names)
    fields = [(field, _text(field.name, style)) for field in wanted.fields]
    casts = [_value(field, text, style) for field, text in fields]
    unfit = [_unfit(field, text, value) for (field, text), value in zip(fields, casts, strict=True)]
    payload = json_of(
        f.struct(*(value.alias(field.name) for (field, _), value in zip(fields, casts, strict=True))), nulls=True
    )
    broken = f.when(f.col(BROKEN).isNotNull(), f.lit(f"the row does not have {len(names)} columns"))
    rows = _csv_texts(spark, place, names, reading).select(
        f.monotonically_increasing_id().alias("position"),
        f.make_valid_utf8(f.coalesce(f.col(BROKEN), payload)).alias("value"),
        f.coalesce(f.col(STRANGE), broken, *unfit).alias("reason"),
    )
    if not reading.is_odd:
        return rows
    _check_header(spark, place, path, names, reading, style)
    wrong = _csv_lines(spark, place, names, reading).select(
        "position", find_complaint(f.col("line"), style.quote, style.delimiter).alias("quotes")
    )
    joined = rows.join(f.broadcast(wrong.where(f.col("quotes").isNotNull())), "position", "left")
    return joined.select("position", "value", f.coalesce("quotes", "reason").alias("reason"))


def _look_through(spark: SparkSession, place: str, path: Path, style: CsvStyle) -> CsvReading:
    """How a file is to be read, from one look at all its lines.

    A text in quotes goes over several lines where one of them has an odd number of quotes: only such a file is read as
    a whole by one task, all others are cut at their lines. Spark decodes what is wholly UTF-8 itself.
    """
    alphabet = find_alphabet(style.encoding)
    lines = spark.read.text(place)
    no = f.lit(False)
    odd = (f.length("value") - f.length(f.replace("value", f.lit(style.quote)))) % 2 == 1 if style.quote else no
    unfit = find_complaint(f.col("value"), style.quote, style.delimiter).isNotNull() if style.quote else no
    strange = ~f.is_valid_utf8("value") if isinstance(alphabet, Utf8) else no
    found = lines.agg(f.max(odd), f.max(odd | unfit), f.max(strange)).first() or (None, None, None)
    breaks, is_odd, is_strange = map(bool, found)
    decoded = alphabet if is_strange or isinstance(alphabet, Alphabet) else None
    if decoded and not (style.delimiter + style.quote).isascii():
        raise SourceUnfit(f"{path} is not UTF-8 throughout: delimiter and quote must be of ASCII; nothing was loaded")
    options = {
        **CSV_OPTIONS,
        "encoding": BYTES if decoded else "UTF-8",
        "header": str(style.header).lower(),
        "delimiter": style.delimiter,
        "quote": style.quote or NO_QUOTE,
        "escape": style.quote or NO_QUOTE,
        "multiLine": str(breaks).lower(),
        # Spark takes `""` for null unless null is another text: one that is in no file. Nothing at all still is null.
        "nullValue": f"null-{uuid4()}",
    }
    return CsvReading(options, decoded, is_odd)


def _check_header(
    spark: SparkSession, place: str, path: Path, names: Sequence[str], reading: CsvReading, style: CsvStyle
) -> None:
    """Raises when the quotes of the header are wrong: then it may have taken rows with it."""
    if not style.header:
        return
    bare = reading._replace(options={**reading.options, "header": "false"})
    first = _csv_lines(spark, place, names, bare).select(find_complaint(f.col("line"), style.quote, style.delimiter))
    said = first.first()
    if said is not None and said[0]:
        raise SourceUnfit(f"{path}: in the header {said[0]}; nothing of it was loaded")


def _csv_names(
    spark: SparkSession,
    place: str,
    path: Path,
    schema: spark_types.StructType | None,
    style: CsvStyle,
    reading: CsvReading,
) -> list[str]:
    names = spark.read.options(**reading.options).csv(place).columns
    if not style.header:
        return _names(path, len(names), schema)
    if reading.alphabet is None:
        return names
    try:
        return [decode_name(reading.alphabet, name) for name in names]
    except UnicodeDecodeError as error:
        raise SourceUnfit(
            f"{path}: the header is not {reading.alphabet.name}: say --encoding; nothing of it was loaded"
        ) from error


def _csv_texts(spark: SparkSession, place: str, names: Sequence[str], reading: CsvReading) -> DataFrame:
    """The rows of a file as texts; the column `BROKEN` has the line of one that has another number of columns.

    `STRANGE` says of one that it is not in the encoding of the file.
    """
    reader = spark.read.schema(_texts([*names, BROKEN])).options(**reading.options)
    rows = reader.options(columnNameOfCorruptRecord=BROKEN, mode="PERMISSIVE").csv(place)
    if reading.alphabet is None:
        return rows.withColumn(STRANGE, f.lit(None).cast("string"))
    alphabet, columns = reading.alphabet, {name: _column(name) for name in rows.columns}
    is_strange = f.greatest(f.lit(False), *(~alphabet.is_fit(column) for column in columns.values()))
    decoded = [alphabet.decode(column).alias(name) for name, column in columns.items()]
    return rows.select(*decoded, f.when(is_strange, f.lit(f"the line is not {alphabet.name}")).alias(STRANGE))


def _csv_lines(spark: SparkSession, place: str, names: Sequence[str], reading: CsvReading) -> DataFrame:
    """The rows of a file with their positions, as they stand in it; null where there is one column too many.

    Spark keeps the text of a row that has too few columns: so of every row, when there should be one more than are.
    """
    rows = _csv_texts(spark, place, [*names, BEYOND], reading)
    # Spark reads no file for the sake of `BROKEN` alone.
    line = f.make_valid_utf8(f.when(_column(BEYOND).isNull(), f.col(BROKEN)))
    return rows.select(f.monotonically_increasing_id().alias("position"), line.alias("line"))


def _texts(names: Sequence[str]) -> spark_types.StructType:
    return spark_types.StructType([spark_types.StructField(name, spark_types.StringType()) for name in names])


def csv_lines(
    spark: SparkSession, path: Path, schema: spark_types.StructType | None, style: CsvStyle, positions: Sequence[int]
) -> dict[int, str]:
    """Some rows of a CSV file by their positions, as they stand in it. A row with one column too many is not found."""
    place = glob_free(path.absolute())
    reading = _look_through(spark, place, path, style)
    numbered = _csv_lines(spark, place, _csv_names(spark, place, path, schema, style, reading), reading)
    return {row[0]: row[1] for row in numbered.where(f.col("position").isin(*positions)).collect() if row[1]}


def _names(path: Path, count: int, schema: spark_types.StructType | None) -> list[str]:
    """The names of the columns of a file that does not say them."""
    if schema is None:
        return [f"column_{number}" for number in range(1, count + 1)]
    if len(schema.names) != count:
        raise SourceUnfit(
            f"{path} has {count} columns and the schema {len(schema.names)}; without a header they must be those of "
            "the schema, in its order; nothing of it was loaded"
        )
    return list(schema.names)


def _text(name: str, style: CsvStyle) -> Column:
    """A column as it stands in the file, without what means null there."""
    text = _column(name)
    return f.when(~text.isin(*style.nulls), text) if style.nulls else text


def _column(name: str) -> Column:
    escaped = name.replace("`", "``")
    return f.col(f"`{escaped}`")


def _value(field: spark_types.StructField, text: Column, style: CsvStyle) -> Column:
    """The value that a text means, null when it means none."""
    kind = field.dataType.typeName()
    pattern = {"date": style.date_format, "timestamp": style.time_format, "timestamp_ntz": style.time_format}.get(kind)
    if pattern:
        return f.try_to_timestamp(text, f.lit(pattern)).cast(field.dataType)
    if kind == "binary":
        return f.try_to_binary(text, f.lit("base64"))
    value = text.try_cast(field.dataType)
    if kind in ("double", "float"):
        # A number beyond the greatest is none of the type; Spark makes it infinite.
        is_infinite = f.abs(value) == f.lit(float("inf"))
        return f.when(~is_infinite | f.lower(f.trim(text)).rlike(INFINITE), value)
    return value


def _unfit(field: spark_types.StructField, text: Column, value: Column) -> Column:
    """Why a text of a CSV file is no value of its column, or null."""
    said = f.concat(
        f.lit(f"{field.name}: "), f.substring(text, 1, 80), f.lit(f" is no {field.dataType.simpleString()}")
    )
    return f.when(text.isNotNull() & value.isNull(), said)


def _parquet(spark: SparkSession, place: str, path: Path, schema: spark_types.StructType | None) -> DataFrame:
    rows = spark.read.parquet(place)
    if schema is not None:
        check_columns(path, rows.columns, schema.names)
        for field in schema.fields:
            came = rows.schema[field.name].dataType
            if came != field.dataType and not _widens(came, field.dataType):
                expected = field.dataType.simpleString()
                raise SourceUnfit(f"{path}: column {field.name} is {came.simpleString()}; expected {expected}")
    columns = [_column(name) for name in rows.columns]
    return rows.select(
        json_of(f.struct(*columns), nulls=True).alias("value"), f.lit(None).cast("string").alias("reason")
    )


def check_columns(path: Path, came: Sequence[str], expected: Sequence[str]) -> None:
    """Raises, with their names, when columns are missing or nobody expected them."""
    missing = [name for name in expected if name not in came]
    strange = [name for name in came if name not in expected]
    if missing or strange:
        told = [f"lacks {', '.join(missing)}"] if missing else []
        told += [f"has {', '.join(strange)}, which the schema does not name"] if strange else []
        raise SourceUnfit(f"{path} {' and '.join(told)}; nothing of it was loaded")


def _widens(came: spark_types.DataType, expected: spark_types.DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    order = ["byte", "short", "integer", "long"]
    names = (came.typeName(), expected.typeName())
    if all(name in order for name in names):
        return order.index(names[0]) <= order.index(names[1])
    return names == ("float", "double")
