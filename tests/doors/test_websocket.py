"""The WebSocket protocol, rule by rule: whatever a client sends, in whatever pieces, comes out right or is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from headwater.doors.sessions import CloseCode, Frame
from headwater.doors.websocket import (
    Arrived,
    Failure,
    FrameReader,
    Goodbye,
    Message,
    Opcode,
    Ping,
    accept,
    encode,
    encode_close,
    encode_message,
    unmask,
)
from headwater.doors.wire import Request

MASK = b"\x01\x02\x03\x04"
BYTES_MAX = 1_000


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, bits: int = 0, masked: bool = True, length: int = 0
) -> bytes:
    """A client's frame; some of it may be wrong on purpose."""
    size = len(data)
    head = bytes([(0x80 if fin else 0) | bits | opcode])
    mark = 0x80 if masked else 0
    if length == 2 or (not length and 125 < size <= 65_535):
        head += bytes([mark | 126]) + size.to_bytes(2)
    elif length == 8 or size > 65_535:
        head += bytes([mark | 127]) + size.to_bytes(8)
    else:
        head += bytes([mark | size])
    return head + (MASK + unmask(MASK, data) if masked else data)


def read(data: bytes, piece: int = 10**9) -> list[Arrived]:
    reader = FrameReader(BYTES_MAX)
    return [one for at in range(0, len(data), piece) for one in reader.feed(data[at : at + piece])]


text, binary, more = Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION

GOOD: dict[str, tuple[bytes, list[Arrived]]] = {
    "a text": (frame(text, b"hi"), [Message("hi")]),
    "an empty text": (frame(text), [Message("")]),
    "bytes": (frame(binary, b"\0\xff"), [Message(b"\0\xff")]),
    "the longest short one": (frame(text, b"x" * 125), [Message("x" * 125)]),
    "the shortest middle one": (frame(text, b"x" * 126), [Message("x" * 126)]),
    "the largest that is allowed": (frame(binary, b"x" * BYTES_MAX), [Message(b"x" * BYTES_MAX)]),
    "in two pieces": (frame(text, b"a", fin=False) + frame(more, b"b"), [Message("ab")]),
    "a letter in two pieces": (frame(text, b"\xc3", fin=False) + frame(more, b"\xa4"), [Message("ä")]),
    "empty pieces": (frame(text, fin=False) + frame(more, fin=False) + frame(more), [Message("")]),
    "a ping": (frame(Opcode.PING, b"1"), [Ping(b"1")]),
    "a pong that nobody asked for": (frame(Opcode.PONG, b"1") + frame(text, b"a"), [Message("a")]),
    "a ping inside a message": (
        frame(text, b"a", fin=False) + frame(Opcode.PING, b"1") + frame(more, b"b"),
        [Ping(b"1"), Message("ab")],
    ),
    "a goodbye inside a message": (frame(text, b"a", fin=False) + frame(8, b"\x03\xe8"), [Goodbye(1000)]),
    "a goodbye without a code": (frame(8), [Goodbye(CloseCode.NO_CODE)]),
    "a goodbye with a reason": (frame(8, b"\x0f\xa1bye"), [Goodbye(4001)]),
    "nothing after a goodbye": (frame(8) + frame(text, b"a") + b"\xff\xff", [Goodbye(CloseCode.NO_CODE)]),
}


@pytest.mark.parametrize("piece", [1, 3, 7, 10**9])
@pytest.mark.parametrize("name", GOOD)
def test_what_a_client_may_send(name: str, piece: int) -> None:
    data, expected = GOOD[name]
    assert read(data, piece) == expected


PROTOCOL, INVALID, BIG = CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA, CloseCode.TOO_BIG
BAD: dict[str, tuple[bytes, CloseCode]] = {
    **{f"reserved bit {bit:x}": (frame(text, b"a", bits=bit), PROTOCOL) for bit in (0x10, 0x20, 0x40)},
    **{f"opcode {code}": (frame(code, b"a"), PROTOCOL) for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "no mask": (frame(text, b"a", masked=False), PROTOCOL),
    "a ping in pieces": (frame(Opcode.PING, b"a", fin=False), PROTOCOL),
    "a long ping": (frame(Opcode.PING, b"x" * 126), PROTOCOL),
    "a long goodbye": (frame(8, b"\x03\xe8" + b"x" * 124), PROTOCOL),
    "nothing to continue": (frame(more, b"a"), PROTOCOL),
    "continued after the end": (frame(text, b"a") + frame(more, b"a"), PROTOCOL),
    "a message inside a message": (frame(text, b"a", fin=False) + frame(text, b"a"), PROTOCOL),
    "bytes inside a text": (frame(text, b"a", fin=False) + frame(binary, b"a"), PROTOCOL),
    "two bytes of length for a short one": (frame(text, b"a", length=2), PROTOCOL),
    "eight bytes of length for a short one": (frame(text, b"a", length=8), PROTOCOL),
    "a negative length": (b"\x82\xff" + b"\xff" * 8 + MASK, PROTOCOL),
    "a text that is not UTF-8": (frame(text, b"\xff"), INVALID),
    "half a letter": (frame(text, b"\xc3"), INVALID),
    "a surrogate": (frame(text, b"\xed\xa0\x80"), INVALID),
    "a bad text in pieces": (frame(text, b"a", fin=False) + frame(more, b"\xff"), INVALID),
    "too large": (frame(binary, b"x" * (BYTES_MAX + 1)), BIG),
    "too large, by what its head says": (b"\x82\xfe\x03\xe9", BIG),
    "too large together": (frame(binary, b"x" * 900, fin=False) + frame(more, b"x" * 200), BIG),
    "nothing without end": (frame(text, fin=False) + frame(more, fin=False) * 2_000, BIG),
    "a goodbye of one byte": (frame(8, b"\x03"), PROTOCOL),
    "a goodbye in bad letters": (frame(8, b"\x03\xe8\xff"), INVALID),
    **{
        f"a goodbye with {code}": (frame(8, code.to_bytes(2)), PROTOCOL)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)
    },
}


@pytest.mark.parametrize("piece", [1, 10**9])
@pytest.mark.parametrize("name", BAD)
def test_what_breaks_a_rule_fails_with_its_code(name: str, piece: int) -> None:
    data, code = BAD[name]
    arrived = read(data + frame(text, b"nobody hears this"), piece)
    assert isinstance(arrived[-1], Failure)
    assert arrived[-1].code == code
    assert not any(isinstance(one, Message) for one in arrived[:-1] if name != "continued after the end")


def test_what_is_held_of_a_message_is_bounded() -> None:
    reader = FrameReader(BYTES_MAX)
    rng = random.Random(7)
    for _ in range(200):
        reader.feed(rng.randbytes(rng.randrange(2_000)))
        assert reader.held_bytes() <= 2 * BYTES_MAX + 2_000


def test_bytes_that_come_one_by_one_are_not_put_together_each_time() -> None:
    """Or a client could keep a server busy with a message that it sends slowly."""
    reader = FrameReader(BYTES_MAX)
    data = frame(binary, b"x" * BYTES_MAX)
    joined = 0
    for at in range(len(data)):
        before = len(reader._unread)
        arrived = reader.feed(data[at : at + 1])
        joined += before > 1 and len(reader._unread) <= 1
    assert arrived == [Message(b"x" * BYTES_MAX)]
    assert joined <= 4


@given(st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=300)), max_size=20), st.integers(1, 200))
def test_what_another_implementation_writes_is_read(messages: list[str | bytes], piece: int) -> None:
    client = ClientProtocol(parse_uri("ws://127.0.0.1/"))
    client.state = client.state.__class__(1)
    for message in messages:
        if isinstance(message, str):
            client.send_text(message.encode())
        else:
            client.send_binary(message)
    data = b"".join(client.data_to_send())
    assert read(data, piece) == [Message(message) for message in messages]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 70_000])
def test_what_we_write_is_read_by_another_implementation(size: int) -> None:
    client = ClientProtocol(parse_uri("ws://127.0.0.1/"), max_size=None)
    client.state = client.state.__class__(1)
    client.parser = client.parse()
    next(client.parser)
    for data in ("x" * size, b"y" * size):
        client.receive_data(encode_message(Frame(data)))
        [event] = client.events_received()
        assert bytes(event.data) == (data.encode() if isinstance(data, str) else data)  # type: ignore[union-attr]


def test_a_frame_is_encoded_once_for_all_who_get_it() -> None:
    sent = Frame("hello")
    assert encode_message(sent) is encode_message(sent)


def test_a_long_reason_is_cut_between_letters() -> None:
    assert encode_close(1000, "ä" * 100) == encode(Opcode.CLOSE, b"\x03\xe8" + "ä".encode() * 61)
    assert encode_close(CloseCode.NO_CODE) == b"\x88\x00"


def test_the_example_of_the_rfc_is_answered_as_there() -> None:
    headers = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    assert accept(Request(method="GET", path="/chat", headers=headers)) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
