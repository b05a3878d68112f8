"""SQL stands in the .sql files of a store, each statement under a name and one line of purpose, and each is used."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from tests.tidy.tree import ROOT, Source, list_files, parse_sources, plant, report

STORES = "src/headwater/stores"
RULES = "tables"
NAME_LINE = re.compile(r"^-- name: *(.*?) *$", re.MULTILINE)

# A keyword alone proves nothing ("delete the queue", "DELETE /queues"); what follows it must read as SQL.
# PRAGMA, BEGIN, COMMIT, ROLLBACK, SAVEPOINT and RELEASE steer a connection and are no query text.
PROSE = r"(?!(?:the|a|an|this|that|its|each|every|all|one)\b)"
OBJECT = "(?: table | index | view | trigger )"
STATEMENT = re.compile(
    rf"""
      select \s .* \s from \s+ {PROSE} \w
    | insert \s+ (?: or \s+ \w+ \s+ )? into \s+ {PROSE} \w
    | replace \s+ into \s+ {PROSE} \w
    | update \s+ (?: or \s+ \w+ \s+ )? \w+ \s+ set \s
    | delete \s+ from \s+ {PROSE} \w
    | with \s+ (?: recursive \s+ )? \w+ \s* (?: \( [^)]* \) )? \s+ as \s+ (?: not \s+ )? (?: materialized \s+ )? \(
    | create \s+ (?: (?: unique | temp | temporary | virtual | or \s+ replace ) \s+ )? {OBJECT} \s
    | alter \s+ table \s
    | drop \s+ {OBJECT} \s
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
# In capitals these open nothing but SQL.
SHOUTED = re.compile(r"(?:SELECT|EXPLAIN|ATTACH|DETACH)\s|(?:VACUUM|REINDEX|ANALYZE)(?:\s|;|$)")


class Statement(NamedTuple):
    """One named statement of a .sql file."""

    name: str
    purpose: str
    body: str
    place: str


def reads_as_sql(text: str) -> bool:
    """Whether a string opens as a statement, written in capitals or small letters as SQL is, not as a sentence."""
    opening = re.sub(r"^(\s*--[^\n]*\n)+", "", text).lstrip()
    keyword = re.match(r"[A-Za-z]+", opening)
    if not keyword or not (keyword[0].isupper() or keyword[0].islower()):
        return False
    return bool(STATEMENT.match(opening) or SHOUTED.match(opening))


def string_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a file with its line; a name stands in for what an f-string fills in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(fixed_text(part) for part in node.values)


def fixed_text(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "filled_in"


def find_sql_in_python(root: Path) -> list[str]:
    found = {
        (source.at(line), text)
        for source in parse_sources(root, "src")
        for line, text in string_texts(source.tree)
        if reads_as_sql(text)
    }
    return [f"{place}: SQL belongs into a .sql file: {text.strip()[:60]!r}" for place, text in sorted(found)]


def store_names(root: Path) -> list[str]:
    """The stores that keep statements in files."""
    paths = (path for path in list_files(root) if path.suffix == ".sql" and path.is_relative_to(STORES))
    return sorted({path.parts[3] for path in paths if path.parts[4:5] == ("sql",)})


def read_statements(root: Path, store: str) -> list[Statement]:
    folder = Path(STORES, store, "sql")
    paths = [path for path in list_files(root) if path.suffix == ".sql" and path.parent == folder]
    return [statement for path in paths for statement in split_statements(root, path)]


def split_statements(root: Path, path: Path) -> Iterator[Statement]:
    text = (root / path).read_text(encoding="utf-8")
    names = list(NAME_LINE.finditer(text))
    ends = [name.start() for name in names[1:]] + [len(text)]
    for name, end in zip(names, ends, strict=True):
        first, _, rest = text[name.end() :][: end - name.end()].lstrip("\n").partition("\n")
        is_comment = first.startswith("--")
        line = text.count("\n", 0, name.start()) + 1
        purpose = first.removeprefix("--").strip() if is_comment else ""
        yield Statement(
            name[1], purpose, (rest if is_comment else first + "\n" + rest).strip(), f"{path.as_posix()}:{line}"
        )


def judge_statement(statement: Statement) -> str | None:
    """What is wrong with the form of a statement, or None."""
    if not statement.name.isidentifier():
        return f"{statement.place}: {statement.name!r} is no name that Python could use"
    if not statement.purpose:
        return f"{statement.place}: {statement.name} lacks the comment line of purpose below its name"
    if count_statements(statement.body) != 1:
        return f"{statement.place}: {statement.name} must be exactly one statement that ends with a semicolon"
    return None


def count_statements(body: str) -> int:
    """How many statements a text holds; one that lacks its semicolon makes the count wrong on purpose."""
    code = re.sub(r"--[^\n]*", "", body)
    count, pending = 0, ""
    for piece in re.split(r"(?<=;)", code):
        pending += piece
        # A trigger holds semicolons of its own, and only SQLite knows where it ends.
        if pending.strip() and apsw.complete(pending):
            count, pending = count + 1, ""
    return -1 if pending.strip() else count


def find_malformed_statements(root: Path) -> list[str]:
    statements = (statement for store in store_names(root) for statement in read_statements(root, store))
    return [wrong for statement in statements if (wrong := judge_statement(statement))]


def find_repeated_names(root: Path) -> list[str]:
    findings = []
    for store in store_names(root):
        first_places: dict[str, str] = {}
        for statement in read_statements(root, store):
            first = first_places.setdefault(statement.name, statement.place)
            if first != statement.place:
                findings.append(f"{statement.place}: {statement.name} stands at {first} already")
    return findings


def is_sql_object(node: ast.expr) -> bool:
    """`sql`, `self.sql` or `self._sql`: what the statements of a store hang on."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in {"sql", "_sql"}


def find_uses(source: Source) -> Iterator[tuple[str, str, bool]]:
    """Each `sql.some_name` with its place, and whether it is called, which a statement never is."""
    called = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and is_sql_object(node.value):
            yield node.attr, source.at(node.lineno), id(node) in called


def is_engine(root: Path, store: str) -> bool:
    """Whether a store keeps the log's tables: the shared rules use its statements."""
    return any(path.is_relative_to(f"{STORES}/{store}/migrations") for path in list_files(root))


def parse_users(root: Path, store: str) -> list[Source]:
    """The files that may use the statements of a store."""
    shared = parse_sources(root, f"{STORES}/{RULES}") if is_engine(root, store) else []
    return [*parse_sources(root, f"{STORES}/{store}"), *shared]


def find_unused_statements(root: Path) -> list[str]:
    findings = []
    for store in store_names(root):
        used = {name for source in parse_users(root, store) for name, _, _ in find_uses(source)}
        unused = (statement for statement in read_statements(root, store) if statement.name not in used)
        findings += [f"{statement.place}: nobody in {store} uses sql.{statement.name}" for statement in unused]
    return findings


def find_missing_statements(root: Path) -> list[str]:
    findings = []
    for store in store_names(root):
        known = {statement.name for statement in read_statements(root, store)}
        uses = (use for source in parse_users(root, store) for use in find_uses(source))
        findings += [
            f"{place}: no statement of {store} is named {name}"
            for name, place, called in uses
            if not called | (name in known)
        ]
    return findings


CHECKS = {
    "no SQL in Python": find_sql_in_python,
    "a name, a purpose, one statement": find_malformed_statements,
    "one statement per name": find_repeated_names,
    "every statement is used": find_unused_statements,
    "every use has a statement": find_missing_statements,
}


@pytest.mark.parametrize("rule", CHECKS)
def test_the_tree_keeps_the_rule_of_sql(rule: str) -> None:
    findings = CHECKS[rule](ROOT)
    assert not findings, report(findings)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "\n    select lsn from segments",
        "-- newest first\nSELECT lsn FROM segments",
        "INSERT OR IGNORE INTO queues VALUES (?)",
        "update cursors set offset = ?",
        "DELETE FROM segments WHERE lsn < ?",
        "WITH ready AS (SELECT 1)",
        "CREATE UNIQUE INDEX x ON y (z)",
        "alter table queues add column task",
        "DROP TABLE jobs",
        "VACUUM",
    ],
)
def test_a_statement_reads_as_sql(text: str) -> None:
    assert reads_as_sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "PRAGMA data_version",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT one",
        "RELEASE one",
        "DELETE",
        "DELETE /api/v1/queues",
        "Select a queue from the list.",
        "select one from the list",
        "delete from the queue",
        "update the cursor",
        "with a lease",
        "create a queue",
        "",
    ],
)
def test_a_word_or_a_sentence_does_not_read_as_sql(text: str) -> None:
    assert not reads_as_sql(text)


def test_sql_planted_in_python_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, {"src/headwater/a.py": 'x = 1\ny = f"SELECT {x} FROM jobs"\n', "src/headwater/b.py": '"""Fine."""'})
    findings = find_sql_in_python(tmp_path)
    assert findings
    assert all(finding.startswith("src/headwater/a.py:2:") for finding in findings)


GOOD_SQL = "-- name: newest\n-- The newest LSN.\nSELECT max(lsn) FROM segments;\n"


def plant_store(root: Path, sql: str, python: str) -> Path:
    return plant(root, {f"{STORES}/sqlite/sql/log.sql": sql, f"{STORES}/sqlite/store.py": python})


@pytest.mark.parametrize("rule", CHECKS)
def test_a_store_that_keeps_the_rules_passes(tmp_path: Path, rule: str) -> None:
    trigger = "-- name: guard\n-- Refuses.\nCREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; SELECT 2; END;\n"
    python = "sql = load('sqlite')\nrun(sql.newest)\nself.sql.guard\nsql.prepare()\n"
    assert CHECKS[rule](plant_store(tmp_path, GOOD_SQL + "\n" + trigger, python)) == []


@pytest.mark.parametrize(
    ("rule", "sql", "python"),
    [
        ("a name, a purpose, one statement", "-- name: newest\nSELECT 1;", ""),
        ("a name, a purpose, one statement", "-- name: newest\n-- Why.\nSELECT 1", ""),
        ("a name, a purpose, one statement", "-- name: newest\n-- Why.\nSELECT 1; SELECT 2;", ""),
        ("a name, a purpose, one statement", "-- name: newest\n-- Why.\n", ""),
        ("a name, a purpose, one statement", "-- name: the newest\n-- Why.\nSELECT 1;", ""),
        ("one statement per name", GOOD_SQL + GOOD_SQL, ""),
        ("every statement is used", GOOD_SQL, "newest = 1"),
        ("every use has a statement", GOOD_SQL, "run(sql.oldest)"),
    ],
)
def test_a_planted_fault_in_a_store_is_caught(tmp_path: Path, rule: str, sql: str, python: str) -> None:
    findings = CHECKS[rule](plant_store(tmp_path, sql, python))
    assert len(findings) == 1
    assert findings[0].startswith(STORES)


ENGINES = {
    f"{STORES}/one/sql/log.sql": GOOD_SQL,
    f"{STORES}/one/migrations/0001_log.sql": "",
    f"{STORES}/two/sql/log.sql": GOOD_SQL.replace("newest", "oldest"),
    f"{STORES}/two/migrations/0001_log.sql": "",
    f"{STORES}/three/sql/own.sql": GOOD_SQL,
    f"{STORES}/three/table.py": "run(sql.newest)",
}


@pytest.mark.parametrize("rule", ["every statement is used", "every use has a statement"])
def test_every_engine_has_what_the_shared_rules_use(tmp_path: Path, rule: str) -> None:
    root = plant(tmp_path, ENGINES | {f"{STORES}/{RULES}/rules.py": "run(self._sql.newest)"})
    [finding] = CHECKS[rule](root)
    assert "oldest" in finding or "of two is named newest" in finding
