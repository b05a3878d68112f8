"""Filters as people write them: what a text or a list of conditions means, and what is refused, where and why."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater import filters
from headwater.errors import FilterTooLarge, InvalidFilter
from headwater.filters.tree import COST_MAX, DEPTH_MAX, LIST_LENGTH_MAX, LITERAL_LENGTH_MAX, NODES_MAX, TEXT_LENGTH_MAX

DOCUMENT: dict[str, object] = {
    "state": "open",
    "size": 12,
    "ratio": 0.5,
    "done": False,
    "urgent": True,
    "owner": None,
    "labels": ["red", 7, True],
    "at": {"city": "Wien", "zip": {"code": 1010}},
    "x y": 1,
    "auth": {"sub": "a field"},
    "in_stock": 3,
}


@pytest.mark.parametrize(
    "text",
    [
        'state == "open"',
        "state == 'open' && size > 10",
        "size >= 12 && size <= 12 && size != 13 && !(size < 12)",
        "10 < size",
        "ratio == 0.5 && ratio < 5e-1 || ratio == 5.0E-1",
        "size == 12.0",
        "-3 < size && size > -1.5",
        'state in ["open", "closed"]',
        '"red" in labels && 7 in labels && true in labels && !(1 in labels)',
        'labels.contains("red") && labels.contains(7)',
        'state.contains("pe") && state.startsWith("op") && state.startsWith("")',
        "has(state) && has(owner) && !has(nothing) && has(at.city) && !has(at.street) && !has(state.x)",
        "owner == null && nothing == null && !(state == null)",
        "nothing != 5 && !(nothing > 5) && !(nothing <= 5)",
        "urgent && !done && urgent == true && done == false",
        "done || urgent && !done",
        '!(state == "closed") && !!urgent',
        'at.city == "Wien" && at["city"] == "Wien" && at.zip.code == 1010 && doc.at.zip["code"] > 1000',
        'doc["x y"] == 1',
        'doc.auth.sub == "a field"',
        "in_stock in [3]",
        "true && !false",
        r'state == "\x6fp\u0065\U0000006e"',
        "size in [] || size > 0",
    ],
)
def test_a_text_means(text: str) -> None:
    assert filters.predicate(filters.parse(text))(DOCUMENT)
    assert not filters.predicate(filters.parse(f"!({text})"))(DOCUMENT)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("size >", 6),
        ("size > 1 size", 9),
        ("(size > 1", 9),
        ("size > 1)", 8),
        ("size = 1", 5),
        ("size > > 1", 7),
        ("size & 1", 5),
        ('state == "open', 9),
        (r'state == "a\qb"', 11),
        (r'state == "\ud800"', 9),
        (r'state == "\u0000"', 9),
        (r'state == "\U00110000"', 10),
        ("size > null", 5),
        ("size < true", 5),
        ("size == other", 5),
        ("size + 1 > 2", 5),
        ("1 == 1", 2),
        ("5", 0),
        ("size == [1]", 5),
        ("size in 5", 5),
        ("size in [[1]]", 9),
        ("size in [1,]", 11),
        ("size in [1 2]", 11),
        ("state.matches('a+')", 6),
        ("matches(state)", 0),
        ("has(1)", 4),
        ("has(state.contains('a'))", 4),
        ("state.startsWith(1)", 17),
        ("state.startsWith(state)", 17),
        ("size > 1 == true", 9),
        ("!size == 1", 6),
        ("auth == 1", 0),
        ("doc == 1", 0),
        ("state.5", 6),
        ('at["a\\"b"] == 1', 0),
        ('at["it\'s"] == 1', 0),
        ("size ? 1 : 2", 5),
        ("größe > 1", 2),
        ("size > 1e999", 7),
        ("size > 0x10", 8),
    ],
)
def test_a_text_that_is_no_filter_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as refused:
        filters.parse(text)
    assert refused.value.code == "invalid_filter"
    assert refused.value.position == position


@pytest.mark.parametrize(
    "text",
    [
        "a == 1 || " * (TEXT_LENGTH_MAX // 10) + "a == 1",
        "(" * (DEPTH_MAX + 1) + "a == 1" + ")" * (DEPTH_MAX + 1),
        "!" * (DEPTH_MAX + 1) + "a",
        "(" * 4_000 + "a",
        " || ".join(["a"] * (NODES_MAX + 1)),
        f"a in [{', '.join('1' for _ in range(LIST_LENGTH_MAX + 1))}]",
        f'a == "{"x" * (LITERAL_LENGTH_MAX + 1)}"',
        "a == " + "9" * 60,
        " && ".join(f"a.contains('{number}')" for number in range(COST_MAX // 32 + 1)),
    ],
)
def test_a_filter_beyond_its_bounds_is_refused_by_its_size(text: str) -> None:
    with pytest.raises(FilterTooLarge) as refused:
        filters.parse(text)
    assert refused.value.code == "filter_too_large"
    assert 0 <= refused.value.position <= len(text)


def test_a_filter_within_all_bounds_is_compiled_to_every_form() -> None:
    deep = "(" * DEPTH_MAX + "a == 1" + ")" * DEPTH_MAX
    wide = " || ".join(f"a == {number}" for number in range(NODES_MAX - 1))
    for text in (deep, wide, f"a in [{', '.join(map(str, range(LIST_LENGTH_MAX)))}]"):
        expression = filters.parse(text)
        assert filters.predicate(expression)({"a": 1})
        for dialect in filters.Dialect:
            assert filters.to_sql(expression, dialect)[0]


@given(st.text(alphabet=st.sampled_from("ab.()[]!&|=<> \"'\\,in-1x0\n\0é")) | st.text())
@example('a["b')
@example("a[")
@example("a.")
@example("-")
@example("a in [-")
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    try:
        expression = filters.parse(text)
    except (InvalidFilter, FilterTooLarge):
        return
    if not filters.has_claims(expression):
        assert filters.predicate(expression)({}) in (True, False)


# ── conditions ──


@pytest.mark.parametrize(
    ("field", "op", "value"),
    [
        ("state", "==", "open"),
        ("state", "!=", "closed"),
        ("size", ">", 11),
        ("size", ">=", 12),
        ("size", "<", 12.5),
        ("size", "<=", 12),
        ("state", "in", ["open", None, 4]),
        ("labels", "contains", "red"),
        ("at.zip.code", "==", 1010),
        ("auth.sub", "==", "a field"),
        ("x y", "==", 1),
        ("owner", "==", None),
        ("urgent", "==", True),
    ],
)
def test_a_condition_means(field: str, op: str, value: object) -> None:
    expression = filters.parse_conditions([{"field": field, "op": op, "value": value}])
    assert filters.predicate(expression)(DOCUMENT)


def test_conditions_hold_together_and_none_holds_for_all() -> None:
    both = [{"field": "size", "op": ">", "value": 1}, {"field": "state", "op": "==", "value": "closed"}]
    assert not filters.predicate(filters.parse_conditions(both))(DOCUMENT)
    assert filters.predicate(filters.parse_conditions(both[:1]))(DOCUMENT)
    assert filters.predicate(filters.parse_conditions([]))({})


def test_contains_of_a_condition_looks_into_lists_alone() -> None:
    part = filters.parse_conditions([{"field": "state", "op": "contains", "value": "pe"}])
    assert not filters.predicate(part)(DOCUMENT)


@pytest.mark.parametrize(
    "condition",
    [
        5,
        {},
        {"field": "a", "op": "=="},
        {"op": "==", "value": 1},
        {"field": 5, "op": "==", "value": 1},
        {"field": "", "op": "==", "value": 1},
        {"field": "a..b", "op": "==", "value": 1},
        {"field": "a'b", "op": "==", "value": 1},
        {"field": "a\nb", "op": "==", "value": 1},
        {"field": "x" * 5_000, "op": "==", "value": 1},
        {"field": "a", "op": "=", "value": 1},
        {"field": "a", "op": "matches", "value": "a+"},
        {"field": "a", "op": ["=="], "value": 1},
        {"field": "a", "op": ">", "value": None},
        {"field": "a", "op": ">", "value": [1]},
        {"field": "a", "op": "==", "value": {"b": 1}},
        {"field": "a", "op": "==", "value": float("nan")},
        {"field": "a", "op": "==", "value": 2**128},
        {"field": "a", "op": "==", "value": "\ud800"},
        {"field": "a", "op": "in", "value": "open"},
        {"field": "a", "op": "in", "value": [[1]]},
        {"field": "a", "op": "==", "value": 1, "not": True},
    ],
)
def test_a_condition_that_is_none_is_refused_with_its_number(condition: object) -> None:
    good = {"field": "a", "op": "==", "value": 1}
    with pytest.raises(InvalidFilter) as refused:
        filters.parse_conditions([good, condition])
    assert refused.value.position == 1


def test_too_many_conditions_are_refused_by_their_number() -> None:
    with pytest.raises(FilterTooLarge):
        filters.parse_conditions([{"field": "a", "op": "==", "value": 1}] * (NODES_MAX + 1))


# ── code that is made ──


def test_nothing_that_somebody_writes_stands_in_the_code_that_is_made() -> None:
    hostile = '__import__("os")'
    expression = filters.parse_conditions(
        [{"field": "import os", "op": "==", "value": hostile}, {"field": "b", "op": "in", "value": [hostile, 5]}]
    )
    code = filters.predicate(expression).__code__
    assert "os" not in " ".join(code.co_names)
    assert not [one for one in code.co_consts if isinstance(one, str)]
    assert code.co_freevars


def test_filters_of_one_shape_share_their_code() -> None:
    codes = {
        id(filters.predicate(filters.parse(f'state == "s{number}" && size > {number}')).__code__)
        for number in range(2, 50)
    }
    assert len(codes) == 1


@pytest.mark.parametrize("value", [2**127 + 1, -(2**127) - 1, 10**400, -(10**4_000), 1e300, float("inf"), float("nan")])
def test_a_number_that_no_filter_compares_with_is_refused(value: float) -> None:
    for operator, compared in (("==", value), ("<", value), ("in", [1, value]), ("contains", value)):
        with pytest.raises(InvalidFilter, match=r"between -2\^127 and 2\^127"):
            filters.parse_conditions([{"field": "n", "op": operator, "value": compared}])


def test_documents_may_have_numbers_that_are_larger_than_those_of_filters() -> None:
    above = filters.predicate(filters.parse("n > 1.5 && n != 7"))
    assert above({"n": 10**400})
    assert not above({"n": -(10**400)})
