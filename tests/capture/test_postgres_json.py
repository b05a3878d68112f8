"""JSON of a real PostgreSQL server that a record cannot hold is told as its text, and every record can be read."""

import logging
from decimal import Decimal
from typing import Any

import pytest

import headwater
from headwater.capture.contract import Change
from headwater.capture.held import held
from headwater.model.record import DEPTH_MAX
from tests.capture.shop import QUEUE, Shop, changes, follow


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


# A type and a value of it as SQL has it; and what JSON makes of it, `...` where that is shown by its text.
AS_TEXT = {
    "half a pair": ("json", r'"\ud800"'),
    "the other half": ("json", r'"\udc00 "'),
    "half a pair before a letter": ("json", r'["\ud800\u0041"]'),
    "half a pair as a key": ("json", r'{"\ud800": 1}'),
    "half a pair behind a number that no float holds": ("json", r'[1e999999, {"a": ["\ud800"]}]'),
    "too many levels": ("json", nested(DEPTH_MAX - 1)),
    "too many levels of jsonb": ("jsonb", nested(DEPTH_MAX - 1)),
    "far too many levels": ("json", nested(3_000)),
    "too many levels and half a pair": ("json", nested(200).replace("1", r'"\ud800"')),
}
AS_JSON: dict[str, tuple[str, str, Any]] = {
    "as many levels as fit": ("json", nested(DEPTH_MAX - 2), ...),
    "brackets in texts": ("json", '["' + "[" * 200 + '"]', ["[" * 200]),
    "a whole pair": ("json", r'"\ud83d\ude00"', "\U0001f600"),
    "no letter": ("json", r'"\u0000"', "\0"),
    "a number that no float holds": ("json", "[1e999999]", [Decimal("1e999999")]),
    "a number of many digits": ("jsonb", "1" * 5_000, Decimal("1" * 5_000)),
    "two of one key": ("json", '{"a": 1, "a": 2}', {"a": 2}),
    "no number": ("float8", "NaN", "NaN"),
    "no end": ("float4", "-Infinity", "-Infinity"),
    "numbers of which one is none": ("float8[]", "{1,NaN}", [1.0, "NaN"]),
    "a text that looks like it": ("text", r'"\ud800"', r'"\ud800"'),
}


async def told(hw: headwater.Headwater, shop: Shop, kind: str, text: str) -> list[Any]:
    """A value as the first copy tells it, as an insert does, and as an update does with the whole row before it."""
    shop.run(f"ALTER TABLE {shop.table} ADD value {kind}, REPLICA IDENTITY FULL")
    insert = f"INSERT INTO {shop.table} (id, value) VALUES (%s, %s::{kind})"
    shop.run(insert, 1, text)
    await follow(hw, shop)
    shop.run(insert, 2, text)
    shop.run(f"UPDATE {shop.table} SET note = 'new' WHERE id = 2")
    await follow(hw, shop)
    copied, inserted, updated = await changes(hw)
    return [
        copied["after"]["value"],
        *(row["value"] for row in (inserted["after"], updated["before"], updated["after"])),
    ]


@pytest.mark.parametrize(("kind", "text"), AS_TEXT.values(), ids=AS_TEXT.keys())
async def test_json_that_no_record_can_hold_is_told_as_its_text_and_warned_of_once(
    hw: headwater.Headwater, shop: Shop, caplog: pytest.LogCaptureFixture, kind: str, text: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await told(hw, shop, kind, text) == [text] * 4
    warnings = [record.getMessage() for record in caplog.records if "is told as its text" in record.getMessage()]
    assert len(warnings) == 2, "one for each run"
    assert shop.table in warnings[0]


@pytest.mark.parametrize(("kind", "text", "value"), AS_JSON.values(), ids=AS_JSON.keys())
async def test_what_a_record_can_hold_stays_as_it_is(
    hw: headwater.Headwater, shop: Shop, caplog: pytest.LogCaptureFixture, kind: str, text: str, value: Any
) -> None:
    found = await told(hw, shop, kind, text)
    if value is ...:
        assert [str(one).replace(" ", "") for one in found] == [text] * 4
    else:
        assert found == [value] * 4
    assert "is told as its text" not in caplog.text


async def test_of_an_array_each_member_is_told_as_it_can_be(hw: headwater.Headwater, shop: Shop) -> None:
    text = r'{{"{\"a\": 1}","\"\\ud800\""},{"2",NULL}}'
    assert await told(hw, shop, "json[]", text) == [[[{"a": 1}, r'"\ud800"'], [2, None]]] * 4


async def test_a_domain_over_json_is_a_text_as_all_domains(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"CREATE DOMAIN {shop.name}.anything AS json")
    assert await told(hw, shop, f"{shop.name}.anything", r'"\ud800"') == [r'"\ud800"'] * 4


async def test_a_row_that_is_known_by_json_goes_to_one_lane(hw: headwater.Headwater, shop: Shop) -> None:
    shop.run(f"DROP TABLE {shop.table}")
    shop.run(f"CREATE TABLE {shop.table} (id jsonb PRIMARY KEY, note text)")
    shop.run(f"INSERT INTO {shop.table} VALUES ('{nested(150)}')")
    await follow(hw, shop, lanes=8)
    shop.run(f"UPDATE {shop.table} SET note = 'new'")
    await follow(hw, shop, lanes=8)
    messages = await hw.queue(QUEUE).pop(batch=10, partitions=8)
    assert [message.payload["key"] for message in messages] == [{"id": nested(150)}] * 2
    assert len({message.partition for message in messages}) == 1


def test_a_document_of_too_many_levels_is_told_as_its_text_where_it_must_be() -> None:
    """Of other sources it comes as values and not as text."""
    deep: Any = 1
    for _ in range(DEPTH_MAX):
        deep = {"a": deep}
    change = Change("insert", "shop.orders", {"_id": 1}, after={"_id": 1, "deep": deep, "list": [deep, 2]})
    after = held(change).after
    assert after is not None
    assert after["deep"] == '{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX
    assert after["list"] == [after["deep"], 2]
    assert held(change).key == {"_id": 1}
