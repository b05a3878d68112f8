"""`queues`, `groups`, `leases` and `seek`."""

from datetime import UTC, datetime

from tests.cli.program import Program


def test_queues_are_listed_with_their_sizes(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "2")
    program.expect(0, "push", "orders", "3", "--partition", "b")
    program.expect(0, "push", "mail", "1")
    program.expect(0, "pop", "mail")
    found = {one["queue"]: one for one in program.expect(0, "queues", "--json").documents()}
    assert {name: (one["partitions"], one["records"], one["waiting"]) for name, one in found.items()} == {
        "orders": (3, 3, 3),
        "mail": (1, 1, 0),
    }
    heading, *rows = program.expect(0, "queues", "list").lines()
    assert heading.split()[:4] == ["QUEUE", "PARTITIONS", "RECORDS", "WAITING"]
    assert [row.split()[:4] for row in rows] == [["mail", "1", "1", "0"], ["orders", "3", "3", "3"]]


def test_a_store_without_queues_lists_none(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert program.expect(0, "queues", "--database", "other").err == "there are no queues yet\n"
    assert program.expect(0, "queues", "--database", "other", "--json").out == ""
    assert program.expect(0, "groups").err == "there are no consumer groups yet\n"


def test_a_queue_is_shown_with_its_options_and_groups(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "2")
    program.expect(0, "pop", "orders", "--group", "billing")
    document = program.expect(0, "queues", "show", "orders", "--json").document()
    assert document["options"]["retry_limit"] == 3
    assert [(group["group"], group["lag"]) for group in document["groups"]] == [("billing", 1)]
    shown = program.expect(0, "queues", "show", "orders").out
    assert "lease_seconds" in shown
    assert "billing" in shown


def test_a_queue_is_configured_and_what_is_not_named_stays(program: Program) -> None:
    program.expect(0, "push", "other", "1")
    program.expect(0, "queues", "configure", "orders", "retry_limit=5", "encrypted=false", "namespace=7")
    changed = program.expect(0, "queues", "configure", "orders", "lease_seconds=1.5", "--json").document()
    assert (changed["namespace"], changed["options"]["retry_limit"]) == ("7", 5)
    assert changed["options"]["lease_seconds"] == 1.5
    assert "orders is configured: task=x" in program.expect(0, "queues", "configure", "orders", "task=x").out


def test_an_option_that_is_not_there_or_out_of_bounds_is_named(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert "no such queue option: nope" in program.expect(2, "queues", "configure", "orders", "nope=1").err
    assert "retry_limit" in program.expect(2, "queues", "configure", "orders", "retry_limit=-1").err
    assert "retry_limit" in program.expect(2, "queues", "configure", "orders", "retry_limit=many").err
    assert program.expect(2, "queues", "show", "no such name").err.startswith("error[invalid_name]: ")


def test_a_queue_is_deleted_once(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert program.expect(0, "queues", "delete", "orders", "--yes").out == "orders is deleted\n"
    assert program.expect(1, "queues", "delete", "orders", "--yes", "--json").error()["code"] == "not_found"


def test_groups_are_listed_with_their_lag_and_deleted(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "2", "3")
    program.expect(0, "push", "mail", "1")
    program.expect(0, "pop", "orders", "--group", "billing", "--no-ack")
    program.expect(0, "pop", "mail", "--group", "billing")
    found = program.expect(0, "groups", "--json").documents()
    assert [(one["queue"], one["lag"], one["leased"]) for one in found] == [("mail", 0, 0), ("orders", 3, 1)]
    assert [line.split()[:3] for line in program.expect(0, "groups", "--queue", "orders").lines()[1:]] == [
        ["orders", "billing", "3"]
    ]
    assert program.expect(1, "groups", "--queue", "nope").err.startswith("error[not_found]: ")
    assert (
        program.expect(0, "groups", "delete", "billing", "--queue", "mail", "--yes", "--json").document()["queues"] == 1
    )
    assert program.expect(0, "groups", "delete", "billing", "--yes").out == "billing is forgotten in 1 queue\n"
    assert program.expect(1, "groups", "delete", "billing", "--yes").err.startswith("error[not_found]: ")


def test_a_group_is_moved_to_where_it_should_read(program: Program) -> None:
    program.expect(0, "push", "orders", "0", "1", "2", "--partition", "p")
    moves = [
        (["--to", "end"], None),
        (["--to", "beginning"], 0),
        (["--to", "2", "--partition", "p"], 2),
        (["--to", "2020-01-01T00:00:00Z"], 0),
    ]
    for place, payload in moves:
        program.expect(0, "seek", "orders", "--group", "billing", "--create", *place)
        ended = program.run("pop", "orders", "--group", "billing", "--json")
        assert (ended.document()["payload"] if ended.code == 0 else None) == payload
    # A time that has not come is a mistake, and moves nothing.
    program.expect(2, "seek", "orders", "--group", "billing", "--to", "2100-01-01T00:00:00+02:00")
    assert program.expect(0, "pop", "orders", "--group", "billing", "--json").document()["payload"] == 1


def test_a_group_gets_options_of_its_own(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    program.expect(0, "pop", "orders", "--group", "billing", "--no-ack")
    shown = program.expect(0, "groups", "configure", "billing", "--queue", "orders", "lease_seconds=7", "retry_limit=0")
    assert shown.out == "billing of orders has of its own: lease_seconds=7, retry_limit=0\n"
    program.expect(0, "leases", "orders", "--release", "--yes")
    program.expect(0, "pop", "orders", "--group", "billing", "--no-ack")
    lease = program.expect(0, "leases", "orders", "--json").document()
    until = datetime.fromisoformat(lease["lease_until"])
    assert (until - datetime.now(UTC)).total_seconds() < 8
    document = program.expect(
        0, "groups", "configure", "billing", "--queue", "orders", "lease_seconds=null", "--json"
    ).document()
    assert (document["own"], document["options"]["lease_seconds"]) == ({"retry_limit": 0}, 300)
    assert "there are" in program.expect(1, "groups", "configure", "typo", "--queue", "orders", "retry_limit=1").err
    assert "lease_seconds" in program.expect(2, "groups", "configure", "billing", "--queue", "orders", "lanes=1").err


def test_leases_are_shown_and_given_back(program: Program) -> None:
    program.expect(0, "push", "orders", "1", "2", "--partition", "p")
    assert program.expect(0, "leases").err == "nothing is leased\n"
    program.expect(0, "pop", "orders", "--batch", "2", "--no-ack")
    heading, row = program.expect(0, "leases").lines()
    assert heading.split() == ["QUEUE", "PARTITION", "GROUP", "HOLDER", "MESSAGES", "ATTEMPT", "UNTIL"]
    assert row.split()[:3] == ["orders", "p", "__QUEUE_MODE__"]
    assert row.split()[4:6] == ["2", "1"]
    document = program.expect(0, "leases", "orders", "--json").document()
    assert (document["partition"], document["messages"]) == ("p", 2)
    assert program.expect(0, "leases", "orders", "--partition", "q", "--json").out == ""
    program.expect(2, "leases", "--release", "--yes")
    program.expect(4, "leases", "orders", "--partition", "q", "--release", "--yes")
    assert program.expect(0, "leases", "orders", "--release", "--yes").out == "released 1 lease of orders\n"
    assert len(program.expect(0, "pop", "orders", "--batch", "2").lines()) == 2
    program.expect(4, "leases", "orders", "--release", "--yes")
    program.expect(1, "leases", "nowhere")


def test_a_seek_says_what_it_did_or_why_not(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    mistyped = program.expect(1, "seek", "orders", "--group", "g", "--to", "end")
    assert "has no group 'g'" in mistyped.err
    assert program.expect(0, "groups", "list", "--json").out == ""
    beyond = program.expect(2, "seek", "orders", "--to", "99", "--partition", "Default")
    assert "ends at offset" in beyond.err
    assert program.expect(0, "seek", "orders", "--group", "g", "--create", "--to", "end").out == (
        "g stands at end in 1 partition of orders\n"
    )
    document = program.expect(0, "seek", "orders", "--group", "g", "--to", "end", "--json").document()
    assert document == {"queue": "orders", "group": "g", "to": "end", "partitions": 1}
    assert program.expect(1, "seek", "nope", "--to", "end").err.startswith("error[not_found]: ")
    assert program.expect(1, "seek", "orders", "--to", "0", "--partition", "x").err.startswith("error[not_found]: ")
