"""Files go into a queue row by row: what fits is loaded once, what does not is set aside with a reason."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headwater.errors import InvalidName, QueueFull, SourceUnfit
from headwater.log.operations import Configure
from headwater.pipeline.failures import told_in_one_line
from headwater.pipeline.files import ENDINGS, TAB, CsvStyle, cut_alike, find_files, format_of, read_file
from headwater.pipeline.flows import load
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.summary import Summary
from tests.pipeline.flows.logs import apply, oracle

SCHEMA = "id BIGINT NOT NULL, name STRING, amount DOUBLE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def load_into(spark: SparkSession, folder: Path, *files: Path, **more: Any) -> Summary:
    job = LoadFiles(
        store=str(folder / "hw.db"),
        queue="orders",
        files=tuple(map(str, files)),
        quarantine=str(folder / "quarantine"),
        **more,
    )
    summary = load.run(spark, job)
    assert summary.facts["rows in"] == summary.facts["rows out"] + summary.facts["quarantined"]
    return summary


def payloads(folder: Path) -> dict[str, list[Any]]:
    return {name: [kept.payload for kept in lane] for name, lane in oracle(folder / "hw.db").items()}


def set_aside(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "quarantine").glob("*"))
    return [json.loads(line) for path in files for line in path.read_text().split("\n") if line]


def test_lines_are_loaded_in_order_and_as_they_are(spark: SparkSession, folder: Path) -> None:
    lines = [{"id": number, "text": "ö" * number} for number in range(300)]
    write_lines(folder / "a.ndjson", *lines, "", "  ")
    facts = load_into(spark, folder, folder / "a.ndjson", type="order").facts
    assert (facts["rows in"], facts["loaded"], facts["quarantined"]) == (300, 300, 0)
    assert payloads(folder) == {"Default": lines}
    assert {kept.type for kept in oracle(folder / "hw.db")["Default"]} == {"order"}


def test_a_file_that_was_loaded_adds_nothing(spark: SparkSession, folder: Path) -> None:
    write_lines(folder / "a.ndjson", *range(50))
    load_into(spark, folder, folder / "a.ndjson")
    (folder / "a.ndjson").rename(folder / "b.ndjson")
    facts = load_into(spark, folder, folder / "b.ndjson").facts
    assert (facts["loaded"], facts["loaded before"]) == (0, 50)
    assert load_into(spark, folder, folder / "b.ndjson", label="again").facts["loaded"] == 50


def test_rows_go_to_the_partition_and_get_the_id_that_they_name(spark: SparkSession, folder: Path) -> None:
    lines = [{"customer": f"c{number % 3}", "id": f"o-{number}"} for number in range(60)]
    write_lines(folder / "a.ndjson", *lines, {"id": "o-60"}, {"customer": "no name!", "id": "o-61"}, {"customer": "c1"})
    summary = load_into(spark, folder, folder / "a.ndjson", partition_field="customer", id_field="id")
    assert payloads(folder) == {f"c{lane}": lines[lane::3] for lane in range(3)}
    assert [kept.transaction_id for kept in oracle(folder / "hw.db")["c0"]] == [f"o-{n}" for n in range(0, 60, 3)]
    assert summary.quarantined == 3
    assert [row["reason"] for row in set_aside(folder)] == [
        "customer: null is no name of a partition",
        "customer: no name! is no name of a partition",
        "id: null is no id",
    ]


def test_poison_lines_are_set_aside_with_a_reason(spark: SparkSession, folder: Path) -> None:
    good = [{"id": 1, "name": "a", "amount": 1.5}, {"id": 2, "new": "field"}, {"id": 3, "amount": None}]
    bad = ["{broken", "[1]", '{"name": "no id"}', '{"id": "7"}', '{"id": 8, "amount": "much"}', "[" * 200 + "]" * 200]
    path = write_lines(folder / "a.ndjson", good[0], *bad, *good[1:])
    with path.open("ab") as file:
        file.write(b'{"id": 9, "name": "\xff\xfe"}\n')
    facts = load_into(spark, folder, path, schema=SCHEMA).facts
    assert (facts["rows in"], facts["rows out"], facts["quarantined"]) == (10, 3, 7)
    assert payloads(folder) == {"Default": good}
    reasons = [row["reason"] for row in set_aside(folder)]
    expected = ["malformed", "object", "`id`", "$.id", "$.amount", "nested", "UTF-8"]
    assert [part in reason for part, reason in zip(expected, reasons, strict=True)] == [True] * 7, reasons
    assert [row["value"] for row in set_aside(folder)][:6] == bad


def test_strict_sets_unknown_fields_aside(spark: SparkSession, folder: Path) -> None:
    write_lines(folder / "a.ndjson", {"id": 1}, {"id": 2, "surprise": True})
    load_into(spark, folder, folder / "a.ndjson", schema=SCHEMA, strict=True)
    assert payloads(folder) == {"Default": [{"id": 1}]}
    assert "surprise" in set_aside(folder)[0]["reason"]


def test_rows_that_were_set_aside_can_be_loaded_with_a_better_schema(spark: SparkSession, folder: Path) -> None:
    lines = [{"id": number if number % 10 else str(number)} for number in range(40)]
    path = write_lines(folder / "a.ndjson", *lines)
    assert load_into(spark, folder, path, schema="id BIGINT").facts["loaded"] == 36
    assert load_into(spark, folder, path).facts["loaded"] == 4
    assert sorted(map(str, payloads(folder)["Default"])) == sorted(map(str, lines))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_texts_in_quotes_may_go_over_several_lines(spark: SparkSession, folder: Path, newline: str) -> None:
    texts = ["plain", f"two{newline}lines", f'"{newline}{newline}",', "", 'ends with a quote"', f"{newline}begins"]
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator=newline)
        writer.writerow(["id", "text"])
        writer.writerows([number, text] for number, text in enumerate(texts))
        file.write(f'6,"three",columns{newline}seven,"not{newline}a number"{newline}8,last{newline}')
    facts = load_into(spark, folder, folder / "a.csv", schema="id BIGINT, text STRING").facts
    assert (facts["rows in"], facts["rows out"], facts["quarantined"]) == (9, 7, 2)
    loaded = [(row["id"], row["text"] or "") for row in payloads(folder)["Default"]]
    assert loaded == [*enumerate(text.replace("\r\n", "\n") for text in texts), (8, "last")]
    assert [row["reason"] for row in set_aside(folder)] == [
        "the row does not have 2 columns",
        "id: seven is no bigint",
    ]


UNCLOSED, UNDOUBLED = "a quote is not closed", "a quote within quotes is not written twice"


@pytest.mark.parametrize(
    ("text", "loaded", "aside"),
    [
        ('5,"unclosed\n6,b\n7,c\n', [], [(f"{UNCLOSED}: the row takes 3 lines", '5,"unclosed\n6,b\n7,c\n')]),
        ('1,a\n2,"two\nlines"\n3,"cut', ["a", "two\nlines"], [(UNCLOSED, '3,"cut')]),
        ('1,a\n3,"open\n6,b\n7,"c"\n8,"d"\n', ["a", "d"], [(f"{UNCLOSED}: the row takes 3 lines", "")]),
        ('1,a\n3,"he said "hi" loud"\n5,e\n', ["a", "e"], [(UNDOUBLED, '3,"he said "hi" loud"')]),
        ('1,"a, ""b""",\n2,"""c"""\n3,5" pipe\n4,x"y"\n', ['"c"', '5" pipe', 'x"y"'], [("", "")]),
        ('1,"a"\n2,"cut",three\n3,"open,\n', ["a"], [("", ""), (UNCLOSED, "")]),
    ],
    ids=["to the end", "a cut upload", "to the next quote", "within quotes", "quotes that are right", "and columns"],
)
def test_a_row_whose_quotes_are_wrong_is_set_aside_as_it_stands(
    spark: SparkSession, folder: Path, text: str, loaded: list[str], aside: list[tuple[str, str]]
) -> None:
    (folder / "a.csv").write_text(f"id,name\n{text}")
    for schema in ("", "id INT NOT NULL, name STRING NOT NULL"):
        summary = load_into(spark, folder, folder / "a.csv", schema=schema, strict=True)
        assert summary.quarantined == len(aside)
    assert [row["name"] for row in payloads(folder)["Default"]] == loaded if loaded else not payloads(folder)
    rows = set_aside(folder)
    assert len(rows) == len(aside)
    for row, (reason, value) in zip(rows, aside, strict=True):
        assert row["reason"] == (reason or "the row does not have 2 columns")
        assert row["value"].strip() == (value or row["value"]).strip()


def test_a_header_whose_quote_is_not_closed_refuses_the_file(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text('id,"name\n1,a\n2,b\n')
    with pytest.raises(SourceUnfit, match=r"in the header a quote is not closed: .* 3 lines; nothing of it was loaded"):
        load_into(spark, folder, folder / "a.csv")
    (folder / "b.csv").write_text('id,"full\nname"\n1,a\n')
    assert load_into(spark, folder, folder / "b.csv").facts["rows out"] == 1
    assert payloads(folder)["Default"] == [{"id": "1", "full\nname": "a"}]


@pytest.mark.parametrize("first", ["", '0,"two\nlines"\n'], ids=["lines", "texts over lines"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
def test_a_line_that_is_not_utf_8_is_set_aside(spark: SparkSession, folder: Path, first: str, mark: str) -> None:
    head = f"{mark}id,näme\n{first}1,Jürgen\n".encode()
    (folder / "a.csv").write_bytes(head + "2,Zoë\n".encode("latin-1") + "3,Łódź\n".encode())
    before = ["two\nlines"] if first else []
    assert load_into(spark, folder, folder / "a.csv").quarantined == 1
    assert [row["näme"] for row in payloads(folder)["Default"]] == [*before, "Jürgen", "Łódź"]
    (row,) = set_aside(folder)
    assert (row["reason"], row["value"]) == ("the line is not UTF-8", "2,Zo\ufffd")
    # A dry run says the same.
    shown = load_into_dry(spark, folder, folder / "a.csv")
    assert [(each["reason"], each["value"]) for each in shown] == [(row["reason"], row["value"])]


def load_into_dry(spark: SparkSession, folder: Path, path: Path, **more: Any) -> list[dict[str, Any]]:
    """What a dry run would set aside."""
    job = LoadFiles(store=str(folder / "none.db"), queue="orders", files=(str(path),), dry_run=True, **more)
    return list(load.run(spark, job).facts["first set aside"])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "iso-8859-15", "koi8-r"])
def test_a_file_in_another_encoding_is_loaded_as_it_is_meant(spark: SparkSession, folder: Path, encoding: str) -> None:
    every = [bytes([byte]).decode(encoding, "ignore") for byte in range(128, 256)]
    letters = "".join(letter for letter in every if letter.isprintable())
    (folder / "a.csv").write_bytes(f'id,{letters[-1]}\n1,"{letters}"\n2,"two\n""{letters[-2]}"""\n'.encode(encoding))
    style = CsvStyle(encoding=encoding)
    assert load_into(spark, folder, folder / "a.csv", csv=style).quarantined == 0
    assert [row[letters[-1]] for row in payloads(folder)["Default"]] == [letters, f'two\n"{letters[-2]}"']


def test_what_an_encoding_does_not_know_is_set_aside_and_loaded_with_a_better_one(
    spark: SparkSession, folder: Path
) -> None:
    (folder / "a.csv").write_bytes(b"id,name\n1,a\n2,\x81\x80\n3,Zo\xeb\n")
    assert load_into(spark, folder, folder / "a.csv").quarantined == 2
    assert load_into(spark, folder, folder / "a.csv", csv=CsvStyle(encoding="cp1252")).quarantined == 1
    assert [row["reason"] for row in set_aside(folder)] == ["the line is not cp1252"]
    # The rows that were loaded before are known again, each once.
    assert load_into(spark, folder, folder / "a.csv", csv=CsvStyle(encoding="latin-1")).facts["loaded"] == 1
    assert [row["name"] for row in payloads(folder)["Default"]] == ["a", "Zoë", "\x81\x80"]


@pytest.mark.parametrize("encoding", ["utf-16", "shift_jis", "cp037", "utf-7", "rot13", "nonsense", ""])
def test_an_encoding_that_cannot_be_read_is_told(spark: SparkSession, folder: Path, encoding: str) -> None:
    (folder / "a.csv").write_text("id\n1\n")
    with pytest.raises(SourceUnfit, match=r"an encoding is utf-8, or one with one byte a character .*iconv"):
        load_into(spark, folder, folder / "a.csv", csv=CsvStyle(encoding=encoding))


def test_too_many_bad_rows_refuse_the_whole_file(spark: SparkSession, folder: Path) -> None:
    path = write_lines(folder / "a.ndjson", *["bad"] * 20, {"id": 1})
    with pytest.raises(SourceUnfit, match=r"20 rows may not pass.*nothing of it was loaded"):
        load_into(spark, folder, path, quarantine_max=19)
    assert payloads(folder) == {}


def test_csv_rows_become_objects_of_the_schema(spark: SparkSession, folder: Path) -> None:
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows(
            [["id", "name", "amount"], [1, 'say "hi", twice', 2.5], ["x", "b", 1], [3, "", "2,5"], [4, "d", ""]]
        )
        file.write("5,short\n6,too,1.0,long\n")
    facts = load_into(spark, folder, folder / "a.csv", schema=SCHEMA).facts
    assert (facts["rows in"], facts["quarantined"]) == (6, 4)
    assert payloads(folder)["Default"] == [
        {"id": 1, "name": 'say "hi", twice', "amount": 2.5},
        {"id": 4, "name": "d", "amount": None},
    ]
    assert [row["reason"] for row in set_aside(folder)] == [
        "id: x is no bigint",
        "amount: 2,5 is no double",
        "the row does not have 3 columns",
        "the row does not have 3 columns",
    ]
    assert [row["value"] for row in set_aside(folder)] == ["x,b,1", '3,,"2,5"', "5,short", "6,too,1.0,long"]


NUMBERS = {
    "DOUBLE": (["1e308", "-1.7976931348623157e308", "4.9e-324", "1"], ["1e400", "-1e309", "1e999999"]),
    "FLOAT": (["1e38", "-3.4028235e38", "3.4028234663852886e38"], ["1e39", "-1e39", "3.4028236e38", "1e400"]),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("ending", ["csv", "ndjson"])
def test_a_number_that_its_type_cannot_hold_is_set_aside(
    spark: SparkSession, folder: Path, kind: str, ending: str
) -> None:
    """And never made infinite; what is infinite says so."""
    held, beyond = NUMBERS[kind]
    is_csv = ending == "csv"
    infinite = ["Infinity", "-Infinity", "NaN", *(["inf", " +INF", "-infinity"] if is_csv else [])]
    numbers, texts = [*held, *beyond], infinite if is_csv else [f'"{each}"' for each in infinite]
    lines = ["n", *numbers, *texts] if is_csv else [f'{{"n":{each}}}' for each in (*numbers, *texts)]
    load_into(spark, folder, write_lines(folder / f"a.{ending}", *lines), schema=f"n {kind} NOT NULL")
    found = [payload["n"] for payload in payloads(folder)["Default"]]
    assert list(map(float, found[: len(held)])) == pytest.approx(list(map(float, held)))
    assert found[len(held) :] == ["Infinity", "-Infinity", "NaN", "Infinity", "Infinity", "-Infinity"][: len(infinite)]
    assert [row["value"] for row in set_aside(folder)] == (beyond if is_csv else [f'{{"n":{each}}}' for each in beyond])


@pytest.mark.parametrize("lines", [False, True], ids=["cut at lines", "read as a whole"])
def test_an_empty_text_in_quotes_is_one_and_nothing_at_all_is_null(
    spark: SparkSession, folder: Path, lines: bool
) -> None:
    """As PostgreSQL's COPY has it; a number cannot be an empty text, unless it is said to mean null."""
    more = '9,"two\nlines",1\n' if lines else ""
    (folder / "a.csv").write_text('id,name,amount\n1,"",1\n2,,2\n3," ",3\n4,x,""\n"",y,5\n6,null,\n' + more)
    assert load_into(spark, folder, folder / "a.csv", schema=SCHEMA).quarantined == 2
    found = [(row["id"], row["name"], row["amount"]) for row in payloads(folder)["Default"]]
    assert found[:4] == [(1, "", 1), (2, None, 2), (3, " ", 3), (6, "null", None)]
    assert [(row["reason"], row["value"]) for row in set_aside(folder)] == [
        ("amount:  is no double", '4,x,""'),
        ("id:  is no bigint", '"",y,5'),
    ]
    (folder / "hw.db").unlink()
    load_into(spark, folder, folder / "a.csv", schema=SCHEMA, csv=CsvStyle(nulls=("",)))
    assert [row["name"] for row in payloads(folder)["Default"]][:4] == [None, None, " ", "x"]


@pytest.mark.parametrize(
    ("style", "line"),
    [
        (CsvStyle(), '"oops",  "say ""hi"", twice",\t1'),
        (CsvStyle(), 'oops,"over\ntwo lines",1'),
        (CsvStyle(delimiter=";", quote="'"), "oops;'a;b''c';1"),
        (CsvStyle(header=False), "oops,name,1"),
        (CsvStyle(nulls=("NA",)), "oops,NA,1"),
        (CsvStyle(), "1,too,1,many"),
        (CsvStyle(), "1,few"),
        (CsvStyle(), "1,too,1,many,of,them"),
        (CsvStyle(), "oops,\U0001f600\u2028,"),
    ],
)
def test_a_row_that_is_set_aside_keeps_the_text_it_has_in_the_file(
    spark: SparkSession, folder: Path, style: CsvStyle, line: str
) -> None:
    """So that it can be mended: also in a dry run."""
    head = f"id{style.delimiter}name{style.delimiter}amount\n" if style.header else ""
    good = style.delimiter.join(("7", "good", "1")) + "\n"
    (folder / "a.csv").write_text(f"{head}{good}{line}\n{good}")
    shown = load.run(
        spark,
        LoadFiles(
            store=str(folder / "hw.db"),
            queue="orders",
            files=(str(folder / "a.csv"),),
            schema=SCHEMA,
            csv=style,
            dry_run=True,
        ),
    )
    assert [row["value"] for row in shown.facts["first set aside"]] == [line]
    assert load_into(spark, folder, folder / "a.csv", schema=SCHEMA, csv=style).facts["rows out"] == 2
    assert [row["value"] for row in set_aside(folder)] == [line]


def test_parquet_rows_become_objects(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(100).selectExpr("id", "concat('n', id) as name", "id / 2 as amount")
    rows.coalesce(1).write.parquet(str(folder / "in"))
    facts = load_into(spark, folder, folder / "in", schema=SCHEMA).facts
    assert facts["loaded"] == 100
    assert payloads(folder)["Default"][3] == {"id": 3, "name": "n3", "amount": 1.5}


def test_columns_that_drifted_are_refused_by_name(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("id,nickname\n1,x\n")
    with pytest.raises(SourceUnfit, match="lacks name, amount and has nickname"):
        load_into(spark, folder, folder / "a.csv", schema=SCHEMA)
    spark.sql("SELECT '1' AS id, 'a' AS name, 1.0D AS amount").write.parquet(str(folder / "in"))
    with pytest.raises(SourceUnfit, match="column id is string; expected bigint"):
        load_into(spark, folder, folder / "in", schema=SCHEMA)
    assert payloads(folder) == {}


def test_compressed_lines_and_odd_names_are_read(spark: SparkSession, folder: Path) -> None:
    with gzip.open(folder / "a [1]{x}*.ndjson.gz", "wt") as file:
        file.write("1\n2\n")
    assert load_into(spark, folder, folder / "a [1]{x}*.ndjson.gz").facts["loaded"] == 2


def test_an_empty_file_is_loaded_as_nothing(spark: SparkSession, folder: Path) -> None:
    (folder / "a.ndjson").touch()
    assert load_into(spark, folder, folder / "a.ndjson").facts["rows in"] == 0


def test_a_full_queue_ends_the_load_and_what_follows_is_loaded_later(spark: SparkSession, folder: Path) -> None:
    apply(folder / "hw.db", Configure(queue="orders", options={"size_max": 10}))
    path = write_lines(folder / "a.ndjson", *range(20))
    with pytest.raises(QueueFull), told_in_one_line():
        load_into(spark, folder, path)
    apply(folder / "hw.db", Configure(queue="orders", options={"size_max": 0}))
    load_into(spark, folder, path)
    assert payloads(folder) == {"Default": list(range(20))}


# ── how a CSV file is written ──

FLIGHTS = (
    "\ufeffyear,carrier,dep_time,tail,time_hour,note,\r\n"
    "2013,UA,517,N14228,2013-01-01 05:00,,\r\n"
    '2013,NA,NA,NA,2013-01-01 06:00,"two\r\nlines, one text",\r\n'
    "2013,AA,late,N3ALAA,2013-01-01 07:00,n/a,\r\n"
)
FLIGHT = "year INT, carrier STRING, dep_time INT, tail STRING, time_hour TIMESTAMP, note STRING, _c6 STRING"


def test_a_file_as_packages_ship_them_is_loaded_unedited(spark: SparkSession, folder: Path) -> None:
    """A byte order mark, CRLF, NA for null, a text over two lines, a last column without a name or values."""
    (folder / "flights.csv").write_text(FLIGHTS, newline="")
    style = CsvStyle(nulls=("NA", "n/a"), time_format="yyyy-MM-dd HH:mm")
    facts = load_into(spark, folder, folder / "flights.csv", schema=FLIGHT, csv=style).facts
    assert (facts["rows in"], facts["rows out"], facts["quarantined"]) == (3, 2, 1)
    first, second = payloads(folder)["Default"]
    assert first == {
        "year": 2013,
        "carrier": "UA",
        "dep_time": 517,
        "tail": "N14228",
        "time_hour": "2013-01-01T05:00:00.000000Z",
        "note": None,
        "_c6": None,
    }
    assert [second[name] for name in ("carrier", "dep_time", "tail")] == [None, None, None]
    assert second["note"] == "two\nlines, one text"
    assert [row["reason"] for row in set_aside(folder)] == ["dep_time: late is no int"]


@pytest.mark.parametrize(
    ("style", "usual", "styled"),
    [
        (CsvStyle(delimiter=";"), {"id;day": "1;'a"}, {"id": "1", "day": "'a"}),
        (CsvStyle(delimiter=TAB), {"id\tday": "1\t'a"}, {"id": "1", "day": "'a"}),
        (CsvStyle(header=False), {"id": "1", "day": "'a"}, {"column_1": "id", "column_2": "day"}),
        (CsvStyle(nulls=("-", "1")), {"id": "1", "day": "'a"}, {"id": None, "day": "'a"}),
        (CsvStyle(quote=""), {"id": "1", "day": "a"}, {"id": "1", "day": '"a"'}),
        (CsvStyle(quote="'"), {"id": "1", "day": "'a''b'"}, {"id": "1", "day": "a'b"}),
    ],
    ids=["delimiter", "tab", "header", "null", "no quote", "quote"],
)
def test_how_a_file_is_written_can_be_said(
    spark: SparkSession, folder: Path, style: CsvStyle, usual: dict[str, str], styled: dict[str, str | None]
) -> None:
    """The same file as the usual kind and as what it is: the first row of each."""
    between = {TAB: "\t"}.get(style.delimiter, style.delimiter)
    text = {"": '"a"', "'": "'a''b'"}.get(style.quote, "'a")
    (folder / "a.csv").write_text(f"id{between}day\n1{between}{text}\n")
    assert first_row(spark, folder, CsvStyle()) == usual
    assert first_row(spark, folder, style) == styled


def first_row(spark: SparkSession, folder: Path, style: CsvStyle) -> dict[str, Any]:
    with cut_alike(spark):
        row = read_file(spark, folder / "a.csv", "csv", None, style).orderBy("position").first()
    assert row is not None
    assert row["reason"] is None
    return dict(json.loads(row["value"]))


def test_days_and_times_are_read_as_they_are_written(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("day,at,local\n31.12.2013,31/12/13 23:59,01/01/14 00:00\n2013-12-31,x,\n")
    schema = "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ"
    assert load_into(spark, folder, folder / "a.csv", schema=schema).facts["rows out"] == 0
    reasons = [row["reason"] for row in set_aside(folder)]
    assert reasons == ["day: 31.12.2013 is no date", "at: x is no timestamp"]
    style = CsvStyle(date_format="dd.MM.yyyy", time_format="dd/MM/yy HH:mm")
    load_into(spark, folder, folder / "a.csv", schema=schema, csv=style)
    assert payloads(folder)["Default"] == [
        {"day": "2013-12-31", "at": "2013-12-31T23:59:00.000000Z", "local": "2014-01-01T00:00:00.000000"}
    ]
    assert [row["reason"] for row in set_aside(folder)] == ["day: 2013-12-31 is no date"]


def test_a_file_without_a_header_has_the_columns_of_the_schema(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("1,a,2.5\n2,b,\n")
    with pytest.raises(SourceUnfit, match="has 3 columns and the schema 2"):
        load_into(spark, folder, folder / "a.csv", schema="id BIGINT, name STRING", csv=CsvStyle(header=False))
    load_into(spark, folder, folder / "a.csv", schema=SCHEMA, csv=CsvStyle(header=False))
    assert payloads(folder)["Default"] == [
        {"id": 1, "name": "a", "amount": 2.5},
        {"id": 2, "name": "b", "amount": None},
    ]


def test_a_file_whose_rows_begin_elsewhere_is_another_and_a_null_marker_makes_none() -> None:
    """Rows are known by their place: where that changes, what was loaded before says nothing of them."""
    job = LoadFiles(store="hw.db", queue="orders", files=("a.csv",))
    usual = load.source_of(job, "sum")
    assert usual == "file:sum"
    assert load.source_of(msgspec.structs.replace(job, label="again"), "sum") == "file:sum:again"
    others = [CsvStyle(header=False), CsvStyle(quote="'"), CsvStyle(quote=""), CsvStyle(delimiter=";")]
    sources = {load.source_of(msgspec.structs.replace(job, csv=style), "sum") for style in others}
    assert len({usual, *sources}) == 5
    marked = msgspec.structs.replace(job, csv=CsvStyle(nulls=("NA",), date_format="d.M.yyyy"))
    assert load.source_of(marked, "sum") == usual


def test_a_dry_run_shows_what_would_become_of_rows_and_writes_nothing(spark: SparkSession, folder: Path) -> None:
    rows = [{"id": f"o-{number}", "customer": "c1"} for number in range(20)]
    write_lines(folder / "a.ndjson", *rows, "{broken", {"id": 7, "customer": "no name!"}, {"id": 8})
    job = LoadFiles(
        store=str(folder / "hw.db"),
        queue="orders",
        files=(str(folder / "a.ndjson"),),
        partition_field="customer",
        id_field="id",
        quarantine=str(folder / "quarantine"),
        dry_run=True,
        sample=2,
    )
    summary = load.run(spark, job)
    facts = summary.facts
    assert (facts["rows in"], facts["would be pushed"], facts["would be set aside"]) == (23, 20, 3)
    assert summary.quarantined == 3
    assert facts["first rows"] == [
        {"partition": "c1", "transaction_id": f"o-{number}", "payload": rows[number]} for number in range(2)
    ]
    assert [row["value"] for row in facts["first set aside"]] == ["{broken", '{"id": 7, "customer": "no name!"}']
    assert "malformed" in facts["first set aside"][0]["reason"]
    assert facts["first set aside"][1]["reason"] == "customer: no name! is no name of a partition"
    assert [path.name for path in folder.iterdir()] == ["a.ndjson"]
    done = load.run(spark, msgspec.structs.replace(job, dry_run=False)).facts
    assert (done["loaded"], done["quarantined"]) == (20, 3)


def test_a_dry_run_shows_the_beginning_of_a_long_text(spark: SparkSession, folder: Path) -> None:
    text = "x" * 200_000
    write_lines(folder / "a.ndjson", {"id": 1, "notes": [{"text": text}]}, f"{{{text}")
    job = LoadFiles(store=str(folder / "hw.db"), queue="orders", files=(str(folder / "a.ndjson"),), dry_run=True)
    facts = load.run(spark, job).facts
    (row,), (aside,) = facts["first rows"], facts["first set aside"]
    assert row["payload"]["notes"] == [{"text": f"{text[:1_000]}… (200,000 characters)"}]
    assert aside["value"] == f"{{{text[:999]}… (200,001 characters)"


# ── what makes no sense ──


def test_a_style_that_makes_no_sense_is_told_before_anything_is_done(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("id,day\n1,2013-01-01\n")
    write_lines(folder / "a.ndjson", 1)
    days = "id BIGINT, day DATE"
    for name, style, schema, told in [
        ("a.csv", CsvStyle(delimiter=""), "", "a delimiter is one character"),
        ("a.csv", CsvStyle(delimiter="||"), "", "a delimiter is one character"),
        ("a.csv", CsvStyle(quote="<>"), "", "a quote is one character"),
        ("a.csv", CsvStyle(quote=","), "", "other than the delimiter"),
        ("a.csv", CsvStyle(date_format="d.M.yyyy"), "", "--date-format is for columns of type date"),
        ("a.csv", CsvStyle(time_format="HH:mm"), days, "--time-format is for columns of type timestamp"),
        ("a.csv", CsvStyle(date_format="bad pattern"), days, "'bad pattern' is no pattern"),
        ("a.ndjson", CsvStyle(nulls=("NA",)), "", "are of CSV files"),
    ]:
        with pytest.raises(SourceUnfit, match=told):
            load_into(spark, folder, folder / name, csv=style, schema=schema)
    assert not (folder / "hw.db").exists()


def test_what_cannot_be_loaded_is_said_before_anything_is_done(spark: SparkSession, folder: Path) -> None:
    path = write_lines(folder / "a.ndjson", 1)
    for wrong, error, told in [
        ({"schema": "id WHATEVER"}, SourceUnfit, "schema 'id WHATEVER'"),
        ({"schema": "id INTERVAL DAY"}, SourceUnfit, "cannot have"),
        ({"format": "xml"}, SourceUnfit, "parquet, csv, ndjson"),
        ({"partition": "no name!"}, InvalidName, "partition"),
        ({"partition_field": "it's"}, SourceUnfit, "quotes"),
    ]:
        with pytest.raises(error, match=told):
            load_into(spark, folder, path, **wrong)
    assert payloads(folder) == {}


def test_a_missing_file_and_a_name_without_a_format_are_told(folder: Path) -> None:
    with pytest.raises(SourceUnfit, match=r"gone\.csv is no file"):
        find_files([str(folder / "gone.csv")])
    with pytest.raises(SourceUnfit, match="no file in"):
        find_files([str(folder)])
    with pytest.raises(SourceUnfit, match="does not tell a format"):
        format_of(Path("a.txt"), "")
    with pytest.raises(SourceUnfit, match="unpack it first"):
        format_of(Path("a.csv.zip"), "")
    assert [format_of(Path(f"a{ending}.gz"), "") for ending in ENDINGS] == list(ENDINGS.values())
