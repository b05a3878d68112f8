"""`token`: made and shown once, kept as a digest, listed, revoked."""

import hashlib
import json
import re
from pathlib import Path

import apsw
import pytest

from tests.cli.program import Program


def everything_in(folder: Path) -> bytes:
    """All bytes of all files of a store."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def create(program: Program, *arguments: str) -> str:
    return program.expect(0, "token", "create", "ci", "--scope", "publish", *arguments).out.strip()


def test_a_new_token_is_all_that_is_printed(program: Program) -> None:
    ended = program.expect(0, "token", "create", "billing", "--scope", "consume", "--queue", "orders.*", "--queue", "b")
    assert re.fullmatch(r"hw_[0-9a-f]{12}_[0-9a-f]{64}\n", ended.out)
    assert ended.err == f"{ended.out[3:15]}: consume for orders.*, b in main; it is not shown again\n"


def test_no_two_tokens_are_alike(program: Program) -> None:
    assert len({create(program)[16:] for _ in range(5)}) == 5


def test_the_store_holds_a_digest_and_nothing_of_the_token_itself(program: Program) -> None:
    text = create(program)
    secret = text.rpartition("_")[2]
    kept = everything_in(program.folder)
    assert hashlib.sha256(text.encode()).hexdigest().encode() in kept
    for form in (secret, secret.upper(), text):
        assert form.encode() not in kept
    assert bytes.fromhex(secret) not in kept


def test_tokens_are_listed_without_what_they_are_checked_by(program: Program) -> None:
    text = create(program, "--expires", "12h", "--database", "tenant")
    program.expect(0, "token", "create", "ops", "--scope", "admin", "--scope", "jobs:submit", "--database", "tenant")
    first, second = program.expect(0, "token", "list", "--json", "--database", "tenant").documents()
    assert list(first) == ["id", "name", "database", "scopes", "queues", "created_at", "expires_at", "revoked_at"]
    assert (first["id"], first["database"], first["scopes"], first["queues"]) == (
        text[3:15],
        "tenant",
        ["publish"],
        ["*"],
    )
    assert first["expires_at"] > first["created_at"]
    assert (second["scopes"], second["expires_at"]) == (["jobs:submit", "admin"], None)
    shown = program.expect(0, "token", "list", "--database", "tenant").out
    assert hashlib.sha256(text.encode()).hexdigest() not in shown
    assert program.expect(0, "token", "list", "--json").out == ""


def test_json_has_the_token_where_it_is_made_and_nowhere_else(program: Program) -> None:
    made = program.expect(0, "token", "create", "ci", "--scope", "publish", "--json").document()
    assert made["token"].startswith(f"hw_{made['id']}_")
    assert "token" not in program.expect(0, "token", "list", "--json").document()


def test_a_token_is_revoked_by_its_id_once_and_in_its_own_database(program: Program) -> None:
    token = create(program)[3:15]
    ended = program.expect(1, "token", "revoke", token, "--database", "other")
    assert ended.err.startswith("error[not_found]: there is no access token")
    assert program.expect(0, "token", "revoke", token).out == f"{token} is revoked\n"
    assert program.expect(1, "token", "revoke", token, "--json").error()["code"] == "not_found"
    assert "revoked" in program.expect(0, "token", "list").out


def test_a_token_on_the_command_line_is_not_taken_and_not_shown_again(program: Program) -> None:
    text = create(program)
    ended = program.expect(2, "token", "revoke", text)
    assert ended.err.startswith("error[usage]: a token is revoked by its id")
    assert text not in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["ci"], 2, "--scope"),
        (["ci", "--scope", "root"], 2, "there is no scope 'root'; there are publish, consume"),
        (["c i", "--scope", "publish"], 2, "token name must be"),
        (["ci", "--scope", "publish", "--queue", "a[b]"], 2, "a queue pattern has"),
        (["ci", "--scope", "publish", "--queue", ""], 2, "--queue is empty"),
        (["ci", "--scope", "publish", "--expires", "soon"], 2, "a time is written like"),
        (["ci", "--scope", "publish", "--expires", "0d"], 2, "lifetime"),
        (["ci", "--scope", "publish", "--expires", "999999999d"], 2, "lifetime"),
        (["ci", "--scope", "publish", "--database", "a b"], 2, "database name must be"),
    ],
)
def test_what_makes_no_sense_makes_no_token(program: Program, arguments: list[str], code: int, says: str) -> None:
    ended = program.run("token", "create", *arguments)
    assert (ended.code, ended.out) == (code, ""), ended
    assert says in ended.err
    if program.store.exists():
        assert program.expect(0, "token", "list", "--json").out == ""


def test_listing_and_revoking_make_no_store(program: Program) -> None:
    assert program.run("token", "list").code == 3
    assert program.run("token", "revoke", "0" * 12).code == 3
    assert list(program.folder.iterdir()) == []


def test_a_row_that_was_tampered_with_is_told_as_damage(program: Program) -> None:
    create(program)
    connection = apsw.Connection(str(program.store))
    connection.execute("UPDATE hw_access_tokens SET scopes = '[\"root\"]'")
    connection.close()
    assert json.loads(program.run("token", "list", "--json").err)["error"]["code"] == "store_damaged"
