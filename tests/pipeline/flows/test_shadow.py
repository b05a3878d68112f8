"""Shadow validation by the command line: a recording tells no secret, and a matcher that errs is not rolled out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.cli.program import run
from headwater.model.document import changes_queue
from headwater.pipeline.sanitising import hash_value, is_sampled
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.pipeline.conftest import KEY as ENCRYPTION_KEY
from tests.scenarios.servers import Server

KEY = "k" * 32
MAIL = "ada{}@example.org"
FILTERS = [
    {"collection": "orders", "filter": "amount > 10"},
    {"collection": "orders", "filter": f"email == '{MAIL.format(3)}'"},
    {"filter": "state == 'paid'"},
    {"collection": "carts/*/lines", "filter": "has(amount)"},
    {"collection": "orders", "filter": "state == 'nowhere'"},
]
# A matcher that forgets who watches by a range.
FORGETFUL = """
from headwater.services.matching import Matcher

class Forgetful(Matcher):
    def _file(self, filed, way):
        if type(way).__name__ == "NumberWithin":
            return lambda: None
        return super()._file(filed, way)
"""
SLOW = """
import time
from headwater.services.matching import Matcher

class Slow(Matcher):
    def match(self, before, after):
        time.sleep(0.02)
        return super().match(before, after)
"""


class Shop(NamedTuple):
    """A store with documents, by the options that lead to it, and somebody who types commands."""

    path: Path
    options: tuple[str, ...]
    capsys: pytest.CaptureFixture[str]

    def type(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        code = run(["pipeline", "run", *arguments, "--json"])
        said = self.capsys.readouterr()
        return code, json.loads(said.out) if said.out else {}, said.err

    def record(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        return self.type("shadow-record", "--collection", "orders", "--to", "recording", *arguments, *self.options)

    def replay(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        Path("filters.ndjson").write_text("".join(json.dumps(one) + "\n" for one in FILTERS))
        return self.type("shadow-replay", "--from", "recording", "--filters", "filters.ndjson", *arguments)


def fill(path: Path, first: int, count: int) -> None:
    """Documents that are made, paid and, some of them, deleted: 2 changes each, and 3 of every fifth."""
    with headwater.sync.open(str(path)) as hw:
        orders = hw.collection("orders")
        for number in range(first, first + count):
            order = {"amount": number, "email": MAIL.format(number), "lines": [{"note": f"for ada {number}"}]}
            orders.set(f"o{number}", {**order, "state": "open"})
            orders.set(f"o{number}", {**order, "state": "paid"})
            if number % 5 == 0:
                orders.delete(f"o{number}")


@pytest.fixture(params=["file", "server"])
def shop(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.db"
    fill(path, 0, 20)
    Path("key").write_text(KEY)
    if request.param == "file":
        yield Shop(path, ("--store", str(path)), capsys)
        return
    door = LiveDoor(path, on_the_edge, housekeeping=False)
    door.start()
    yield Shop(path, ("--server", door.url), capsys)
    door.stop()


def rows(spark: SparkSession) -> list[dict[str, Any]]:
    """What anybody reads in the folder as it is."""
    found = spark.read.parquet(str(Path("recording").absolute())).orderBy("lsn", "offset").collect()
    return [row.asDict() for row in found]


def test_what_is_recorded_tells_no_declared_field_and_keeps_the_rest(spark: SparkSession, shop: Shop) -> None:
    code, facts, err = shop.record("--hash", "email", "--remove", "lines.note", "--key-file", "key")
    assert (code, err) == (0, "")
    assert (facts["changes_in"], facts["recorded"], facts["left_out_by_the_sample"]) == (44, 44, 0)
    assert "in_no_document" not in facts
    every = b"".join(path.read_bytes() for path in Path("recording").rglob("*") if path.is_file())
    found = rows(spark)
    assert len(found) == 44
    assert not [text for row in found for text in row.values() if "ada" in str(text)]
    assert KEY.encode() not in every
    assert b"example.org" not in every
    paid = next(row for row in found if row["id"] == "o3" and row["op"] == "update")
    image = json.loads(paid["after"])
    assert image["email"] == hash_value(MAIL.format(3), KEY.encode())
    assert (image["amount"], image["state"], image["lines"]) == (3, "paid", [{}])
    assert json.loads(paid["before"])["state"] == "open"
    assert [row["after"] for row in found if row["op"] == "delete"] == [None] * 4


def test_a_recording_goes_on_with_what_is_new_and_has_all_of_a_document_or_nothing(
    spark: SparkSession, shop: Shop
) -> None:
    code, facts, _ = shop.record("--share", "0.4", "--remove", "emial")
    assert code == 0
    assert facts["in_no_document"] == "emial"
    fill(shop.path, 20, 20)
    code, more, _ = shop.record("--share", "0.4", "--remove", "emial")
    assert code == 0
    assert facts["recorded"] + facts["left_out_by_the_sample"] == more["changes_in"] == 44
    wanted = {f"o{number}" for number in range(40) if is_sampled("orders", f"o{number}", 0.4)}
    assert 0 < len(wanted) < 40
    found = rows(spark)
    assert {row["id"] for row in found} == wanted
    assert len(found) == sum(3 if int(name[1:]) % 5 == 0 else 2 for name in wanted)
    code, _, err = shop.record("--share", "0.4")
    assert code == 1, "a folder would have rows that were sanitised and rows that were not"
    assert "holds something else" in err
    assert rows(spark) == found


def test_the_matcher_of_this_version_answers_as_every_filter_by_itself(spark: SparkSession, shop: Shop) -> None:
    shop.record("--hash", "email", "--key-file", "key")
    code, facts, err = shop.replay("--key-file", "key")
    assert (code, err) == (0, "")
    assert (facts["changes"], facts["filters"], facts["diverging"]) == (44, 5, 0)
    # 9 documents above 10 with 2 changes, and one of them deleted; the two of one address; paid, and deleted then.
    assert facts["matches"] == (18 + 1) + 2 + (20 + 4)
    assert facts["filters_without_a_match"] == 2
    code, facts, _ = shop.replay()
    assert (code, facts["filters_without_a_match"]) == (0, 3), "without the key nobody has that address"


def test_a_matcher_that_errs_is_not_rolled_out(spark: SparkSession, shop: Shop) -> None:
    shop.record("--remove", "email")
    Path("forgetful.py").write_text(FORGETFUL)
    code, facts, err = shop.replay("--matcher", "forgetful:Forgetful")
    assert (code, facts["diverging"]) == (5, 19)
    assert json.loads(err)["error"]["code"] == "matchers_diverge"
    assert facts["examples"][0]["less"] == ["orders: amount > 10 (insert)"]
    assert facts["filters_after_what_was_removed_or_hashed"] == 1
    assert shop.replay("--matcher", "forgetful:Forgetful", "--divergence-max", "0.42")[0] == 5
    assert shop.replay("--matcher", "forgetful:Forgetful", "--divergence-max", "0.44")[0] == 0


def test_a_new_version_is_compared_with_answers_that_the_old_one_gave(spark: SparkSession, shop: Shop) -> None:
    shop.record()
    Path("forgetful.py").write_text(FORGETFUL)
    Path("slow.py").write_text(SLOW)
    assert shop.replay("--keep", "answers")[0] == 0
    assert shop.replay("--against", "answers")[1]["diverging"] == 0
    assert shop.replay("--against", "answers", "--matcher", "forgetful:Forgetful")[0] == 5
    fill(shop.path, 20, 1)
    shop.record()
    code, facts, _ = shop.replay("--against", "answers")
    assert (code, facts["diverging"]) == (5, 3), "a change that the old one never answered is not one that it agrees on"
    code, _, err = shop.replay("--matcher", "slow:Slow", "--slowdown-max", "2")
    assert (code, "times as long" in err) == (5, True)
    assert shop.replay("--keep", "answers")[0] == 1, "what is kept is not written over"


def test_changes_that_are_encrypted_in_the_store_are_not_recorded_in_the_open_unasked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_ENCRYPTION_KEY", ENCRYPTION_KEY)
    path = tmp_path / "log.db"
    fill(path, 0, 1)
    assert run(["queues", "configure", changes_queue("orders"), "encrypted=true", "--store", str(path)]) == 0
    fill(path, 1, 2)
    capsys.readouterr()
    shop = Shop(path, ("--store", str(path)), capsys)
    code, _, err = shop.record()
    assert (code, "--decrypt" in err, list(tmp_path.glob("recording/lsn-*"))) == (1, True, [])
    code, facts, _ = shop.record("--decrypt")
    assert (code, facts["recorded"], len(rows(spark))) == (0, 7, 7)


def test_a_token_records_the_collections_that_it_may_read_and_no_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.db"
    fill(path, 0, 3)
    with headwater.sync.open(str(path)) as hw:
        hw.collection("salaries").set("s1", {"amount": 1})
        for name, database, scopes, patterns in (
            ("reader", "main", ("subscribe", "documents:read"), ("documents/orders",)),
            ("subscriber", "main", ("subscribe",), ("*",)),
            ("other", "acme", ("subscribe", "documents:read"), ("*",)),
        ):
            tokens = hw._inner.access_tokens(database)
            _, secret = hw._bridge.run(tokens.create(name, scopes, queues=patterns))
            Path(name).write_text(secret)
    server = Server(path, "--auth", "token")
    shop = Shop(path, ("--server", server.url), capsys)
    try:
        code, facts, err = shop.record("--collection", "*", "--token-file", "reader")
        assert (code, err) == (0, "")
        assert (facts["collections"], facts["recorded"]) == (1, 7)
        assert {row["collection"] for row in rows(spark)} == {"orders"}
        before = sorted(Path("recording").iterdir())
        for name in ("subscriber", "other"):
            code, _, err = shop.type(
                "shadow-record", "--collection", "orders", "--to", name + "s", *shop.options, "--token-file", name
            )
            assert (code, json.loads(err)["error"]["code"]) == (1, "not_found"), err
        assert sorted(Path("recording").iterdir()) == before
    finally:
        server.stop()
