"""`rules`: read from a file, checked, kept, listed."""

import json

from tests.cli.program import Program


def test_rules_of_a_file_hold_and_are_listed(program: Program) -> None:
    rules = [{"pattern": "notes", "read": "owner == auth.sub", "create": "true"}]
    (program.folder / "rules.json").write_text(json.dumps(rules))
    program.expect(0, "rules", "set", str(program.folder / "rules.json"))
    listed = program.expect(0, "rules", "list", "--json").documents()
    assert listed == [{**rules[0], "update": "", "delete": ""}]
    (program.folder / "rules.json").write_text("[]")
    program.expect(0, "rules", "set", str(program.folder / "rules.json"))
    assert program.expect(0, "rules", "list", "--json").documents() == []


def test_a_file_that_has_no_rules_is_refused_and_says_where(program: Program) -> None:
    for code, text, why in (
        (2, '{"pattern": "notes"}', "list"),
        (2, '[{"pattern": "notes", "write": "true"}]', "write"),
        (1, '[{"pattern": "notes", "read": "owner =="}]', "notes, read"),
    ):
        (program.folder / "rules.json").write_text(text)
        assert why in program.expect(code, "rules", "set", str(program.folder / "rules.json")).err
