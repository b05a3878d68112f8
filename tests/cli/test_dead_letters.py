"""`dlq`: what failed for good is found again."""

import pytest

import headwater
from tests.cli.program import Program


@pytest.fixture
async def letters(program: Program) -> Program:
    """A queue with three dead letters."""
    async with headwater.open(str(program.store)) as hw:
        queue = hw.queue("orders")
        for number in range(3):
            await queue.push({"id": number}, type="order", headers={"from": "shop"})
        messages = await queue.pop(group="billing", batch=3)
        await queue.fail(messages, error="no such customer", retry=False)
    return program


def ids(program: Program) -> list[int]:
    return [one["id"] for one in program.expect(0, "dlq", "list", "orders", "--json").documents()]


def test_dead_letters_are_listed_and_shown(letters: Program) -> None:
    first, *rest = letters.expect(0, "dlq", "list", "orders", "--json").documents()
    assert (first["group"], first["error"], first["payload"]) == ("billing", "no such customer", {"id": 0})
    assert len(rest) == 2
    heading, *rows = letters.expect(0, "dlq", "list", "orders").lines()
    assert heading.startswith("ID")
    assert all("no such customer" in row for row in rows)
    page = letters.expect(0, "dlq", "list", "orders", "--limit", "1", "--after", str(first["id"]))
    assert page.lines()[1].split()[0] == str(first["id"] + 1)
    assert f"--after {first['id'] + 1}" in page.err
    shown = letters.expect(0, "dlq", "show", "orders", str(first["id"])).out
    assert '{"id": 0}' in shown
    assert "header from" in shown
    assert letters.expect(0, "dlq", "show", "orders", str(first["id"]), "--json").document() == first


def test_dead_letters_are_requeued_to_another_queue_or_to_all_groups(letters: Program) -> None:
    one, *_ = ids(letters)
    assert letters.expect(0, "dlq", "requeue", "orders", str(one), "--to", "by-hand").out.startswith("requeued 1 ")
    assert len(letters.expect(0, "pop", "by-hand", "--batch", "10").lines()) == 1
    letters.expect(2, "dlq", "requeue", "orders", "--to", "by-hand", "--all-groups")
    letters.expect(0, "dlq", "requeue", "orders", "--all-groups")
    seen = letters.expect(0, "pop", "orders", "--group", "somebody-else", "--batch", "100").lines()
    assert len(seen) == 5, "the three there were, and two of them once more"


def test_dead_letters_are_requeued_by_id_and_all_at_once(letters: Program) -> None:
    one, *_ = ids(letters)
    assert letters.expect(0, "dlq", "requeue", "orders", str(one)).out == "requeued 1 dead letter of orders\n"
    assert letters.expect(0, "dlq", "requeue", "orders", "--json").document() == {"queue": "orders", "requeued": 2}
    assert ids(letters) == []
    assert letters.expect(4, "dlq", "requeue", "orders").err == "orders has no dead letters\n"
    popped = letters.expect(0, "pop", "orders", "--group", "billing", "--batch", "9", "--json").documents()
    assert sorted(one["payload"]["id"] for one in popped) == [0, 1, 2]


def test_dead_letters_are_purged_when_somebody_said_yes(letters: Program) -> None:
    one, *rest = ids(letters)
    assert letters.expect(2, "dlq", "purge", "orders").err.startswith("error[usage]: ")
    letters.expect(0, "dlq", "purge", "orders", str(one), "--yes")
    assert ids(letters) == rest
    assert letters.expect(0, "dlq", "purge", "orders", "--yes").out == "purged 2 dead letters of orders\n"
    assert letters.expect(4, "dlq", "purge", "orders", "--yes", "--json").document() == {"queue": "orders", "purged": 0}


def test_what_is_not_there_is_told(letters: Program) -> None:
    assert letters.expect(4, "dlq", "show", "orders", "99").err == (
        "error[not_found]: queue 'orders' has no dead letter 99\n"
    )
    assert letters.expect(4, "dlq", "requeue", "orders", "99").err.startswith("error[not_found]: ")
    assert letters.expect(1, "dlq", "list", "nope").err.startswith("error[not_found]: ")
    assert letters.expect(1, "dlq", "purge", "nope", "--yes").err.startswith("error[not_found]: ")
    assert len(ids(letters)) == 3
