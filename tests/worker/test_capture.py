"""What a command prints is kept within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.worker.capture import Capture


def test_short_output_is_kept_whole() -> None:
    capture = Capture(100)
    capture.add(b"one\n")
    capture.add(b"two\n")
    assert capture.text() == "one\ntwo\n"
    assert capture.last_line() == "two"


def test_long_output_keeps_its_beginning_and_its_end() -> None:
    capture = Capture(20)
    for number in range(1_000):
        capture.add(f"{number:04}\n".encode())
    text = capture.text()
    assert text.startswith("0000\n0001\n\n… 4,980 bytes left out …\n")
    assert text.endswith("0998\n0999\n")


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(0, 64))
def test_no_more_is_kept_than_the_limit_and_nothing_is_made_up(chunks: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    assert len(capture._head) + len(capture._tail) <= limit
    assert whole.startswith(bytes(capture._head))
    assert whole.endswith(bytes(capture._tail))
    assert len(capture._head) + len(capture._tail) + capture._dropped == len(whole) == capture.total


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    capture = Capture(100)
    capture.add(b"\xff\x00a")
    assert capture.text() == "\ufffd\ufffda"
