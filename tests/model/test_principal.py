"""What somebody who is known may do."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidName, NotAllowed, QueueMissing
from headwater.model.own_queues import apart, patterns_within
from headwater.model.principal import (
    NOBODY,
    OWNER,
    Principal,
    Scope,
    check_pattern,
    require,
    require_all,
    scopes_of,
)

LETTERS = "ab.:/-_"
names = st.text(LETTERS, min_size=1, max_size=8)
patterns = st.text(LETTERS + "*", min_size=1, max_size=8)


def test_an_admin_may_do_everything_but_run_code_and_watch_over_other_databases() -> None:
    admin = Principal(scopes=frozenset({Scope.ADMIN}))
    assert [scope for scope in Scope if not admin.may(scope)] == [Scope.SUBMIT_JOBS, Scope.OPERATOR]


def test_a_scope_does_not_bring_another() -> None:
    for scope in set(Scope) - {Scope.ADMIN}:
        principal = Principal(scopes=frozenset({scope}))
        included = [Scope.SUBSCRIBE] if scope is Scope.CONSUME else []
        assert [other for other in Scope if principal.may(other)] == [scope, *included]


def test_the_owner_of_the_machine_may_not_run_code_over_the_wire_unasked() -> None:
    assert not OWNER.may(Scope.SUBMIT_JOBS)
    assert OWNER.may(Scope.ADMIN)
    assert OWNER.may_use("anything/at.all")


def test_nobody_may_do_anything() -> None:
    assert not any(NOBODY.may(scope) for scope in Scope)
    assert not NOBODY.may_use("orders")
    assert not NOBODY.may_use_all()


# ── queue patterns ──


@pytest.mark.parametrize(
    ("pattern", "queue", "allowed"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("Orders", "orders", False),
        ("*.eu", "orders.eu", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "ace2", False),
        ("**", "orders", True),
    ],
)
def test_a_pattern_names_whole_queues(pattern: str, queue: str, allowed: bool) -> None:
    assert Principal(queues=(pattern,)).may_use(queue) is allowed


def stands_for(pattern: str, name: str) -> bool:
    """What a pattern means, written down as plainly as possible."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(stands_for(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] == name[0] and stands_for(pattern[1:], name[1:])


@given(st.lists(patterns, max_size=3), names)
def test_a_queue_is_theirs_when_one_of_the_patterns_stands_for_it(chosen: list[str], queue: str) -> None:
    expected = any(stands_for(pattern, queue) for pattern in chosen)
    assert Principal(queues=tuple(chosen)).may_use(queue) is expected


@given(names)
def test_a_pattern_without_a_star_is_one_queue(name: str) -> None:
    assert Principal(queues=(check_pattern(name),)).may_use(name)
    assert not Principal(queues=(name,)).may_use(name + "a")


@given(st.text(max_size=12))
def test_a_pattern_has_the_letters_of_names_and_the_star(text: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-*")
    if text and set(text) <= allowed:
        assert check_pattern(text) == text
    else:
        with pytest.raises(InvalidName):
            check_pattern(text)


@pytest.mark.parametrize("wrong", ["", "a?", "[ab]", "a b", "a\n", "x" * 257, None, 7, ["a"]])
def test_what_is_no_pattern_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidName):
        check_pattern(wrong)


def test_a_long_pattern_of_stars_does_not_take_long() -> None:
    hostile = "*a" * 100
    assert not Principal(queues=(hostile,)).may_use("a" * 99 + "b" * 157)


# ── what routes ask for ──


def test_a_missing_scope_is_named() -> None:
    producer = Principal(scopes=frozenset({Scope.PUBLISH}))
    require(producer, Scope.PUBLISH, "orders")
    with pytest.raises(NotAllowed, match="needs the scope consume"):
        require(producer, Scope.CONSUME, "orders")


def test_a_queue_that_is_not_theirs_is_refused_like_one_that_is_not_there() -> None:
    producer = Principal(scopes=frozenset({Scope.PUBLISH}), queues=("orders.*",))
    require(producer, Scope.PUBLISH)
    require(producer, Scope.PUBLISH, "orders.eu", "orders.us")
    with pytest.raises(QueueMissing, match=r"^there is no queue 'secret'$"):
        require(producer, Scope.PUBLISH, "orders.eu", "secret")


def test_who_has_no_scope_learns_nothing_about_queues() -> None:
    with pytest.raises(NotAllowed):
        require(Principal(queues=("orders",)), Scope.CONSUME, "secret")


def test_a_request_that_names_no_queue_needs_all_of_them() -> None:
    require_all(Principal(scopes=frozenset({Scope.CONSUME})), Scope.CONSUME)
    with pytest.raises(NotAllowed):
        require_all(Principal(scopes=frozenset({Scope.CONSUME}), queues=("a*", "b*")), Scope.CONSUME)
    with pytest.raises(NotAllowed):
        require_all(Principal(scopes=frozenset({Scope.CONSUME})), Scope.ADMIN)


# ── roles ──


@pytest.mark.parametrize(
    ("roles", "scopes"),
    [
        (["admin"], {Scope.ADMIN}),
        (["read-write"], {Scope.PUBLISH, Scope.CONSUME, Scope.SUBSCRIBE, Scope.METRICS}),
        (["read-only"], {Scope.SUBSCRIBE, Scope.METRICS}),
        (["write-only"], {Scope.PUBLISH}),
        (["write-only", "read-only"], {Scope.PUBLISH, Scope.SUBSCRIBE, Scope.METRICS}),
        (["consume", "jobs:submit"], {Scope.CONSUME, Scope.SUBMIT_JOBS}),
        (["Admin", "ADMIN", "root", ""], set()),
        ([], set()),
    ],
)
def test_roles_bring_scopes(roles: list[str], scopes: set[Scope]) -> None:
    assert scopes_of(roles) == scopes


# ── queues of Headwater's own ──

scopes = st.sets(st.sampled_from(Scope))
# Patterns that come near: parts of the names that matter, with stars between them.
near = st.lists(
    st.sampled_from(["*", "h", "headwater/", "doc", "documents/", "uments/", "s/", "jobs", "a", "b"]),
    min_size=1,
    max_size=5,
).map("".join)
queues = st.sampled_from(["headwater/jobs", "headwater/other", "a", "b", "documents/a", "hotel"]) | near.map(
    lambda text: "headwater/documents/" + (text.replace("*", "") or "a")
)


@given(scopes, st.lists(near, min_size=1, max_size=3), queues)
def test_what_lists_are_asked_with_reaches_what_may_be_used_and_nothing_else(
    granted: set[Scope], patterns: list[str], queue: str
) -> None:
    principal = Principal(scopes=frozenset(granted), queues=tuple(patterns))
    everybodys, own = apart(principal.reach)
    fitting = own if queue.startswith("headwater/") else everybodys
    assert any(fnmatchcase(queue, pattern) for pattern in fitting) is principal.may_use(queue)


@given(near, near.map(lambda text: text.replace("*", "")))
def test_a_pattern_within_a_prefix_fits_what_it_fits_behind_it(pattern: str, rest: str) -> None:
    name = "documents/" + rest
    within = patterns_within(pattern, "documents/")
    assert any(fnmatchcase(name, one) for one in within) is fnmatchcase(name, pattern)
    assert all(one.startswith("documents/") for one in within)


@pytest.mark.parametrize(
    ("granted", "patterns", "may"),
    [
        (set(Scope), ("h*",), ()),
        (set(Scope), ("headwater/*",), ()),
        (set(Scope) - {Scope.ADMIN}, ("*",), ("headwater/documents/a",)),
        ({Scope.CONSUME}, ("*",), ()),
        ({Scope.ADMIN}, ("*",), ("headwater/jobs", "headwater/documents/a", "headwater/new")),
        ({Scope.ADMIN}, ("documents/*",), ("headwater/documents/a",)),
        ({Scope.READ_DOCUMENTS}, ("documents/a",), ("headwater/documents/a",)),
        ({Scope.READ_DOCUMENTS}, ("documents/b", "jobs"), ()),
    ],
)
def test_headwaters_own_queues_are_for_whom_their_content_is_for(
    granted: set[Scope], patterns: tuple[str, ...], may: tuple[str, ...]
) -> None:
    principal = Principal(scopes=frozenset(granted), queues=patterns)
    own = ("headwater/jobs", "headwater/documents/a", "headwater/new")
    assert tuple(queue for queue in own if principal.may_use(queue)) == may
