"""What somebody who is known may do."""

import pytest

from headwater.model.principal import OWNER, Principal, Scope


def test_an_admin_may_do_everything_but_run_code() -> None:
    admin = Principal(scopes=frozenset({Scope.ADMIN}))
    assert [scope for scope in Scope if not admin.may(scope)] == [Scope.SUBMIT_JOBS]


def test_a_scope_does_not_bring_another() -> None:
    producer = Principal(scopes=frozenset({Scope.PUBLISH}))
    assert [scope for scope in Scope if producer.may(scope)] == [Scope.PUBLISH]


def test_the_owner_of_the_machine_may_not_run_code_over_the_wire_unasked() -> None:
    assert not OWNER.may(Scope.SUBMIT_JOBS)
    assert OWNER.may(Scope.ADMIN)
    assert OWNER.may_use("anything/at.all")


@pytest.mark.parametrize(
    ("pattern", "queue", "allowed"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("Orders", "orders", False),
    ],
)
def test_a_pattern_names_whole_queues(pattern: str, queue: str, allowed: bool) -> None:
    assert Principal(queues=(pattern,)).may_use(queue) is allowed
