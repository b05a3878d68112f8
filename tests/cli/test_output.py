"""Values as people read them."""

import pytest

from headwater.cli.output import iso_time, plural, show, show_bytes, show_seconds
from headwater.model.terminal import clean


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (4_194_304, "4 MiB"), (2**50, "1,024.0 TiB")],
)
def test_a_size_has_a_unit(count: int, shown: str) -> None:
    assert show_bytes(count) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.25, "0.25 s"), (90, "1.5 min"), (7_200, "2 h"), (86_400, "1 d")])
def test_a_time_has_a_unit(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (True, "yes"), (False, "no"), (12_345, "12,345"), (300.0, "300"), (0.25, "0.25")]
)
def test_a_cell_is_shown_as_people_write_it(value: object, shown: str) -> None:
    assert show(value) == shown


def test_one_is_not_many() -> None:
    assert [plural(count, "message") for count in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]


def test_a_time_is_as_seek_takes_it() -> None:
    assert iso_time(1_790_000_000_123_456) == "2026-09-21T14:13:20.123Z"
    assert iso_time(None) is None


def test_what_would_steer_a_terminal_is_shown() -> None:
    assert clean("a\x1b[31m\u009b\r\n\tb ü") == "a\\u001b[31m\\u009b\\u000d\\u000a\tb ü"
