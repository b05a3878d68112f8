"""`store`: which store it is, and another identity after a backup was put back."""

import json
import re

from tests.cli.program import Program

UUID_LINE = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n"


def test_the_identity_is_shown_by_the_store_and_by_the_doctor(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    shown = program.expect(0, "store", "identity").out
    assert re.fullmatch(UUID_LINE, shown)
    assert program.expect(0, "store", "identity", "--json").document() == {"identity": shown.strip()}
    assert shown.strip() in program.expect(0, "doctor").out
    assert program.expect(0, "doctor", "--json").document()["store"]["identity"] == shown.strip()


def test_a_renewed_identity_stays(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    before = program.expect(0, "store", "identity").out.strip()
    renewed = program.expect(0, "store", "renew", "--yes")
    assert re.fullmatch(UUID_LINE, renewed.out)
    assert f"was {before}" in renewed.err
    assert program.expect(0, "store", "identity").out == renewed.out
    told = program.expect(0, "store", "renew", "--yes", "--json").document()
    assert told["before"] == renewed.out.strip() != told["identity"]
    assert program.expect(0, "pop", "orders", "--json").document()["payload"] == 1


def test_an_identity_is_not_renewed_without_a_yes(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    before = program.expect(0, "store", "identity").out
    assert "say --yes" in program.expect(2, "store", "renew").err
    assert program.expect(0, "store", "identity").out == before


def test_a_store_that_is_missing_is_not_made_to_have_an_identity(program: Program) -> None:
    for command in (["identity"], ["renew", "--yes"]):
        ended = program.expect(3, "store", *command, "--json")
        assert json.loads(ended.err)["error"]["code"] == "store_missing"
    assert list(program.folder.iterdir()) == []
