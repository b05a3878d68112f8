"""`headwater room` and `headwater bench rooms`."""

import json

import pytest

from tests.cli.program import Program


def test_what_is_said_on_the_command_line_is_shown_on_another(program: Program) -> None:
    assert program.expect(0, "room", "send", "canvas-1", '{"x": 1}', "--type", "object-create").out == (
        "said in canvas-1 at offset 0\n"
    )
    said = program.expect(0, "room", "send", "canvas-1", '{"x": 2}', "--json")
    assert json.loads(said.out) == {"room": "canvas-1", "offset": 1, "durability": "written"}
    shown = program.expect(0, "room", "tail", "canvas-1", "--since", "beginning", "--limit", "2", "--json")
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(line["offset"], line["type"], line["data"]) for line in lines] == [
        (0, "object-create", {"x": 1}),
        (1, "message", {"x": 2}),
    ]
    plain = program.expect(0, "room", "tail", "canvas-1", "--since", "0", "--limit", "1")
    assert plain.out.endswith(' 1 message {"x": 2}\n')
    program.expect(4, "room", "members", "canvas-1")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("room", "tail", "a", "--since", "then"), 2),
        (("room", "send", "a", "no json"), 1),
        (("room", "send", "a b", "1"), 2),
        (("room", "send", "a", "1", "--type", "presence"), 2),
    ],
)
def test_what_cannot_be_is_told_in_one_line(program: Program, words: tuple[str, ...], code: int) -> None:
    assert program.expect(code, *words).err.count("\n") == 1


def test_writers_of_rooms_are_measured(program: Program) -> None:
    """S0-51: with the options people know; here for a moment."""
    options = ("--threads", "4", "--messages-per-sec", "20", "--duration", "0.5")
    found = json.loads(program.expect(0, "bench", "rooms", "writes", *options, "--json").out)
    assert (found["expected"], found["done"], found["target_p95_ms"]) == (40, 40, 100.0)
    assert found["p95_ms"] > 0


def test_readers_of_rooms_are_measured(program: Program) -> None:
    """S0-52."""
    options = ("--canvases", "5", "--poll-interval", "50", "--duration", "0.5")
    found = json.loads(program.expect(0, "bench", "rooms", "polls", *options, "--json").out)
    assert (found["expected"], found["done"], found["target_p95_ms"]) == (50, 50, 5.0)
