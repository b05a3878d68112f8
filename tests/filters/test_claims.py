"""What a filter says of who asks: `auth.…`."""

import pytest

from headwater import filters
from headwater.errors import InvalidFilter
from headwater.filters.tree import NEVER, Constant

ADA: dict[str, object] = {"sub": "ada", "roles": ["editor", "reader"], "level": 3, "org": {"id": 7}, "banned": None}


def allows(text: str, document: dict[str, object], claims: dict[str, object] = ADA) -> bool:
    return filters.predicate(filters.bind(filters.parse(text), claims))(document)


@pytest.mark.parametrize(
    "text",
    [
        "owner == auth.sub",
        "auth.sub == owner",
        "auth.sub in members",
        'members.contains(auth.sub) && title.startsWith("T")',
        "kind in auth.roles",
        '"editor" in auth.roles && !("admin" in auth.roles)',
        "auth.level > level && level < auth.level && auth.level >= 3",
        "org.id == auth.org.id",
        "auth.banned == null && auth.missing == null && !has(auth.missing) && has(auth.banned)",
        'auth.sub == "ada" && auth.sub in ["ada", "bob"] && auth.sub.startsWith("a")',
        'owner != "bob" && !(owner == "bob")',
        "auth.missing == null || owner == auth.missing",
    ],
)
def test_a_claim_is_compared(text: str) -> None:
    document: dict[str, object] = {
        "owner": "ada",
        "members": ["bob", "ada"],
        "title": "The",
        "kind": "reader",
        "level": 2,
        "org": {"id": 7},
    }
    assert allows(text, document)


@pytest.mark.parametrize(
    "text",
    [
        "owner == auth.missing",
        "owner != auth.missing",
        "!(owner == auth.missing)",
        "!(owner != auth.missing)",
        "auth.missing in members",
        "!(auth.missing in members)",
        "owner in auth.missing",
        "!(owner in auth.missing)",
        "owner in auth.sub",
        "level > auth.missing",
        "!(level > auth.missing)",
        "level > auth.roles",
        "!(owner == auth.roles)",
        "title.startsWith(auth.level)",
        "owner == auth.banned",
    ],
)
@pytest.mark.parametrize("document", [{}, {"owner": None, "members": [None]}, {"owner": "bob", "title": "x"}])
def test_a_claim_that_is_missing_opens_nothing(text: str, document: dict[str, object]) -> None:
    assert not allows(text, document)


def test_what_is_so_whatever_the_missing_claim_is_is_so() -> None:
    either = '!(owner == auth.missing && title == "x")'
    assert allows(either, {"title": "y"})
    assert not allows(either, {"title": "x"})


def test_what_says_nothing_of_the_document_is_decided_once() -> None:
    admin = filters.parse('"admin" in auth.roles || owner == auth.sub')
    assert filters.bind(admin, {"roles": ["admin"]}) == Constant(True)
    assert filters.bind(admin, {}) == NEVER


def test_a_filter_with_claims_is_not_compiled_before_it_is_bound() -> None:
    unbound = filters.parse("owner == auth.sub")
    assert filters.has_claims(unbound)
    assert not filters.has_claims(filters.bind(unbound, ADA))
    with pytest.raises(InvalidFilter):
        filters.predicate(unbound)
    for dialect in filters.Dialect:
        with pytest.raises(InvalidFilter):
            filters.to_sql(unbound, dialect)


def test_a_condition_speaks_of_the_document_alone() -> None:
    named_alike = filters.parse_conditions([{"field": "auth.sub", "op": "==", "value": "ada"}])
    assert not filters.has_claims(named_alike)
    assert filters.predicate(named_alike)({"auth": {"sub": "ada"}})


@pytest.mark.parametrize("claim", [10**400, "x" * 2_049, "a\0b"])
def test_a_claim_that_no_filter_can_hold_opens_nothing(claim: object) -> None:
    for text in ("n == auth.n", "n != auth.n", "n < auth.n", "n in auth.all", "!(n in auth.all)"):
        assert not allows(text, {"n": claim}, {"n": claim, "all": [claim]})
    assert allows("auth.n == null || n == 1", {"n": 1}, {"n": claim})


@pytest.mark.parametrize("claim", [2**200, "x" * 2_049, "a\0b"])
def test_a_claim_that_no_filter_can_hold_opens_nothing_beside_a_value_either(claim: object) -> None:
    texts = ('auth.n != "y"', "auth.n > 5", 'auth.n.startsWith("x")', 'auth.n in ["y"]', "auth.n == null", "auth.n")
    for text in texts:
        assert not allows(text, {}, {"n": claim})
        assert not allows(f"!({text})", {}, {"n": claim})
    assert allows("has(auth.n)", {}, {"n": claim})
