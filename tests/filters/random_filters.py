"""Random documents and filters, drawn from few names and many awkward values, and what a filter means, said plainly.

`means` is the definition that every form is held to: it goes through the tree and looks, with no thought of speed.
"""

import json
import math

from hypothesis import strategies as st

from headwater.filters.tree import (
    And,
    Comparison,
    Constant,
    Equal,
    Expression,
    Field,
    HasText,
    Holds,
    Leaf,
    Not,
    OneOf,
    Or,
    Order,
    Present,
    Scalar,
    StartsWith,
)

MISSING = object()
NAMES = ["a", "b", "n", "größe", "x y", "0"]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "B",
    "é",
    "é",
    "1",
    "true",
    "null",
    "[1]",
    "{}",
    "💧",
    "\U0010ffff",
    "a\U0010ffff",
    "퟿",
    "it's",
]
NUMBERS: list[int | float] = [
    *(0, 1, -1, 2, 5, 0.0, 1.0, -0.0, 0.1, 0.30000000000000004, 1e-300, -2.5, 1e15),
    *(2**53 - 1, 2**53, 2**53 + 1, float(2**53), 2**60, float(2**60), 10**23, 1e23, -(2**53) - 1),
    *(2**63 - 1, 2**63, 2**63 + 1, float(2**63), -(2**63), -(2**63) - 1, 2**64, 2**100, float(2**100)),
]

scalars: st.SearchStrategy[Scalar] = st.one_of(
    st.sampled_from([None, True, False]),
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) <= 2.0**127),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4),
)
values: st.SearchStrategy[object] = st.one_of(
    scalars,
    st.lists(st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=4),
    st.dictionaries(st.sampled_from(NAMES), st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=3),
)
documents: st.SearchStrategy[dict[str, object]] = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)

fields = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(lambda path: Field(tuple(path)))
comparable = scalars.filter(lambda value: value is not None and not isinstance(value, bool))
texts = scalars.filter(lambda value: isinstance(value, str))
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Equal, fields, scalars),
    st.builds(Order, fields, st.sampled_from(Comparison), comparable),
    st.builds(OneOf, fields, st.lists(scalars, max_size=4).map(tuple)),
    st.builds(Holds, fields, scalars),
    st.builds(HasText, fields, texts),
    st.builds(StartsWith, fields, texts),
    st.builds(Present, fields),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=5,
)


def means(expression: Expression, document: dict[str, object]) -> bool:
    """Whether a document is meant, by the definition."""
    match expression:
        case And():
            return all(means(part, document) for part in expression.parts)
        case Or():
            return any(means(part, document) for part in expression.parts)
        case Not():
            return not means(expression.part, document)
        case Constant():
            return expression.value
        case _:
            return _leaf_means(expression, document)


def _leaf_means(leaf: Leaf, document: dict[str, object]) -> bool:
    assert isinstance(leaf.subject, Field)
    value = read(document, leaf.subject.path)
    if isinstance(leaf, Present):
        return value is not MISSING
    value = None if value is MISSING else value
    match leaf:
        case Equal():
            return same(value, leaf.value)
        case Order():
            return kind(value) == kind(leaf.value) and kind(value) in ("number", "text") and _lies(leaf, value)
        case OneOf():
            assert isinstance(leaf.values, tuple)
            return any(same(value, one) for one in leaf.values)
        case Holds():
            return isinstance(value, list) and any(same(one, leaf.value) for one in value)
        case HasText():
            return isinstance(value, str) and isinstance(leaf.value, str) and leaf.value in value
        case StartsWith():
            return isinstance(value, str) and isinstance(leaf.value, str) and value.startswith(leaf.value)


def _lies(leaf: Order, value: object) -> bool:
    sign = leaf.comparison
    low, high = (value, leaf.value) if sign.startswith("<") else (leaf.value, value)
    below = low < high  # type: ignore[operator]
    return bool(below) or (sign.endswith("=") and low == high)


def read(document: dict[str, object], path: tuple[str, ...]) -> object:
    found: object = document
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return MISSING
        found = found[name]
    return found


def kind(value: object) -> str:
    kinds = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "text", list: "list"}
    return kinds.get(type(value), "object")


def same(left: object, right: object) -> bool:
    return kind(left) == kind(right) and left == right


# ── as text ──


def spelled(expression: Expression) -> str:
    """An expression in the filter language, with more parentheses than it needs."""
    match expression:
        case And():
            return " && ".join(f"({spelled(part)})" for part in expression.parts)
        case Or():
            return " || ".join(f"({spelled(part)})" for part in expression.parts)
        case Not():
            return f"!({spelled(expression.part)})"
        case Constant():
            return "true" if expression.value else "false"
        case Equal():
            return f"{_path(expression)} == {_literal(expression.value)}"
        case Order():
            return f"{_path(expression)} {expression.comparison} {_literal(expression.value)}"
        case OneOf():
            assert isinstance(expression.values, tuple)
            return f"{_path(expression)} in [{', '.join(map(_literal, expression.values))}]"
        case Holds():
            return f"{_literal(expression.value)} in {_path(expression)}"
        case HasText():
            return f"{_path(expression)}.contains({_literal(expression.value)})"
        case StartsWith():
            return f"{_path(expression)}.startsWith({_literal(expression.value)})"
        case Present():
            return f"has({_path(expression)})"


def _path(leaf: Leaf) -> str:
    return "doc" + "".join(f"[{_literal(name)}]" for name in leaf.subject.path)


def _literal(value: object) -> str:
    if isinstance(value, float):
        assert math.isfinite(value)
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(one):08x}" if one in '"\\\n' or ord(one) > 126 else one for one in value) + '"'
    return json.dumps(value)
