"""Lines from a descriptor: every line once, in order, with its number."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli import lines as reading
from headwater.cli.lines import Line, Lines
from headwater.errors import TooLarge


async def read_all(descriptor: int, batch_max: int = 3) -> list[list[Line]]:
    lines = Lines(descriptor, batch_max=batch_max, line_bytes_max=100)
    return [batch async for batch in lines.batches()]


def read_pipe(data: bytes) -> list[list[Line]]:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    try:
        return asyncio.run(read_all(reader))
    finally:
        os.close(reader)


def test_blank_lines_count_and_are_not_read() -> None:
    assert read_pipe(b"a\n\n \r\nb\nc") == [[Line(1, b"a"), Line(4, b"b")], [Line(5, b"c")]]
    assert read_pipe(b"") == []


@given(st.lists(st.binary(min_size=1, max_size=40).map(lambda text: text.replace(b"\n", b" ")), max_size=30))
def test_every_line_comes_once_and_in_order(texts: list[bytes]) -> None:
    batches = read_pipe(b"\n".join(texts))
    expected = [Line(number, text.strip()) for number, text in enumerate(texts, 1) if text.strip()]
    assert [line for batch in batches for line in batch] == expected
    assert all(1 <= len(batch) <= 3 for batch in batches)


async def test_a_file_is_read_to_its_end_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_BYTES", 7)
    (tmp_path / "some").write_bytes(b"".join(b"line %d\n" % number for number in range(20)))
    descriptor = os.open(tmp_path / "some", os.O_RDONLY)
    try:
        found = [line.text for batch in await read_all(descriptor) for line in batch]
    finally:
        os.close(descriptor)
    assert found == [b"line %d" % number for number in range(20)]


@pytest.mark.parametrize("data", [b"a\n" + b"x" * 101 + b"\nb\n", b"a\n" + b"x" * 101])
def test_a_line_that_is_too_long_is_named(data: bytes) -> None:
    with pytest.raises(TooLarge, match="line 2: "):
        read_pipe(data)
