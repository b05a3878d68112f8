"""The rules that flows go by, without a flow running: rows as commits, steps, judgements, the manifest's file."""

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArchiveDamaged, SourceUnfit
from headwater.log.operations import Touch
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.pipeline import loading
from headwater.pipeline.ends import Planner
from headwater.pipeline.judging import Rules, make_judge, parse_schema
from headwater.pipeline.loading import Target, operations, runs_of, without
from headwater.pipeline.manifest import (
    NAME,
    OLD_NAME,
    Entry,
    new_manifest,
    read_manifest,
    verify,
    write_manifest,
)
from headwater.pipeline.options import anywhere
from headwater.pipeline.planning import Range

TARGET = Target("hw.db", "main", "orders")


def row(partition: str, position: int, source: str = "s") -> tuple[Any, ...]:
    return (partition, source, position, "", "", "", None, "", 0, f"{position}")


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_what_is_covered_is_everything_but_the_gaps(chosen: set[int], gaps: set[int]) -> None:
    positions = sorted(chosen - gaps)
    rows = iter([row("p", position) for position in positions])
    found = list(operations(rows, TARGET, sorted(gaps)))
    covered = {place for load in found for begin, end in load.covers for place in range(begin, end)}
    whole = set(range(positions[0], positions[-1] + 1)) if positions else set()
    assert covered == whole - gaps
    assert list(chain.from_iterable(load.positions for load in found)) == positions


@given(st.sets(st.integers(0, 60)))
def test_without_knowing_gaps_only_the_rows_are_covered(chosen: set[int]) -> None:
    ranges = runs_of(sorted(chosen))
    assert [place for begin, end in ranges for place in range(begin, end)] == sorted(chosen)


def test_commits_are_cut_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "RECORDS_PER_COMMIT", 3)
    rows = [row("a", 0), row("a", 1), row("a", 2), row("a", 7), row("b", 3), row("b", 4, "t")]
    found = [(one.partition, one.source, list(one.positions), one.covers) for one in operations(iter(rows), TARGET, ())]
    assert found == [
        ("a", "s", [0, 1, 2], ((0, 3),)),
        ("a", "s", [7], ((3, 8),)),
        ("b", "s", [3], ((3, 4),)),
        ("b", "t", [4], ((4, 5),)),
    ]
    assert len(list(operations(iter(rows), TARGET, (), bytes_max=1))) == 6
    assert without(2, 2, ()) == ()


def touch(lsn: int, queue: str = "orders", *, partition: int = 1, first: int = 0, count: int = 10) -> Touch:
    lane = Lane("main", queue, "", "", "p")
    return Touch(Lsn(lsn), PartitionId(partition), Offset(first), count, lane)


def test_a_plan_cuts_steps_and_sees_what_is_missing() -> None:
    planner = Planner("main", {"orders": 1, "mails": 3}, {1: 10}, records_max=20)
    assert planner.take(touch(2, first=15)) is None
    assert planner.take(touch(3, "mails", partition=2)) is None
    assert planner.take(touch(4, "other", partition=3)) is None
    step = planner.take(touch(5, "mails", partition=2, first=10))
    assert step is not None
    assert (step.spans, step.records, step.through) == ((Range(Lsn(1), Lsn(5)),), 20, 5)
    assert (step.ends, step.lost) == ({1: 25, 2: 20}, {"orders": 5, "mails": 10})
    rest = planner.finish(9)
    assert (rest.spans, rest.records) == ((Range(Lsn(5), Lsn(9)),), 0)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("schema", "payload", "told"),
    [
        ("id BIGINT", '{"id": 1}', None),
        ("id BIGINT", '{"id": null}', None),
        ("id BIGINT", "{}", None),
        ("id BIGINT", '{"id": 9223372036854775808}', "9223372036854775807"),
        ("id TINYINT", '{"id": 128}', "127"),
        ("id BIGINT NOT NULL", "{}", "missing required field `id`"),
        ("tags ARRAY<STRING>", '{"tags": ["a", 1]}', "$.tags[1]"),
        ("at STRUCT<city: STRING>", '{"at": {"city": 1}}', "$.at.city"),
        ("sums MAP<STRING, DOUBLE>", '{"sums": {"a": 1.5}}', None),
        ("day DATE, at TIMESTAMP", '{"day": "2026-11-15", "at": "2026-11-15T08:00:00Z"}', None),
        ("day DATE", '{"day": "tomorrow"}', "$.day"),
        ("a STRUCT<b: DOUBLE>", '{"a": {"b": "1.5"}}', "Expected a number, got text - at `$.a.b`"),
        ("a FLOAT", '{"a": "it\'s - at \\n1"}', "Expected a number, got text - at `$.a`"),
        ("a DOUBLE", '{"a": "NaN"}', None),
        ("v VARIANT", '{"v": [1, {"a": null}]}', None),
        ("ok BOOLEAN, price DECIMAL(10, 2)", '{"ok": 1}', "$.ok"),
    ],
)
def test_a_judge_names_what_does_not_fit(schema: str, payload: str, told: str | None) -> None:
    said = make_judge(Rules(parse_schema(schema), 1_000))(payload)
    assert said is None if told is None else (told in (said or "")), said


def test_a_judge_without_a_schema_checks_the_bounds_of_a_record() -> None:
    judge = make_judge(Rules(None, 10))
    assert judge("[1, 2]") is None
    assert "10 bytes" in (judge('"0123456789"') or "")
    assert judge(None) == "there is no value"


def test_a_store_has_the_same_address_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert anywhere("hw.db") == str(tmp_path / "hw.db")
    assert anywhere("sqlite:///hw.db") == f"sqlite:///{tmp_path}/hw.db"
    assert anywhere("postgresql://host/hw") == "postgresql://host/hw"


def test_beside_the_manifest_of_an_older_version_the_new_one_counts(tmp_path: Path) -> None:
    """As a run leaves them that died between writing the one and removing the other."""
    write_manifest(tmp_path, new_manifest("archive", "old.db", "main"))
    old = (tmp_path / NAME).read_bytes()
    manifest = new_manifest("archive", "hw.db", "main")
    write_manifest(tmp_path, manifest)
    (tmp_path / OLD_NAME).write_bytes(old)
    assert read_manifest(tmp_path) == manifest
    write_manifest(tmp_path, manifest)
    assert not (tmp_path / OLD_NAME).exists()


def test_a_manifest_comes_back_and_one_of_another_format_is_refused(tmp_path: Path) -> None:
    manifest = new_manifest("archive", "hw.db", "main")
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    write_manifest(tmp_path, msgspec.structs.replace(manifest, format=2))
    with pytest.raises(SourceUnfit, match="upgrade"):
        read_manifest(tmp_path)
    with pytest.raises(ArchiveDamaged, match="gone"):
        verify(tmp_path, Entry("gone", "q", "d", 1, 2, 3, 4, ""))
