"""From bytes to requests: however the bytes are cut and whatever they are, what comes out is requests and refusals."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.doors.edge.limits import Limits
from headwater.doors.edge.reading import Arrival, Refusal, RequestReader
from headwater.doors.wire import Request
from tests.doors.live_edge import request

CONVERSATION = (
    request("/a?x=1", cookie="one")
    + request("/b", "POST", b"body")
    + request("/c", "PUT", transfer_encoding="chunked")
    + b"3\r\none\r\n2\r\ntw\r\n0\r\n\r\n"
    + request("/d", "HEAD", connection="close")
)
PIECES = [
    b"GET ",
    b"POST ",
    b"/",
    b" HTTP/1.1",
    b"\r\n",
    b"host: a",
    b"content-length: 4",
    b"\x00",
    b":",
    b"0",
    b"x" * 99,
]


def read(*pieces: bytes) -> list[Arrival | Refusal]:
    reader = RequestReader(Limits(head_bytes_max=1_000, body_bytes_max=1_000))
    return [arrived for piece in pieces for arrived in reader.feed(piece)]


def requests(arrived: list[Arrival | Refusal]) -> list[tuple[str, str, str, bytes, bool]]:
    found = [arrival for arrival in arrived if isinstance(arrival, Arrival)]
    assert len(found) == len(arrived)
    return [
        (one.request.method, one.request.path, one.request.query, one.request.body, one.keep_alive) for one in found
    ]


@given(st.lists(st.integers(min_value=0, max_value=len(CONVERSATION)), max_size=12))
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(CONVERSATION)]
    pieces = [CONVERSATION[start:end] for start, end in pairwise(places)]
    assert requests(read(*pieces)) == [
        ("GET", "/a", "x=1", b"", True),
        ("POST", "/b", "", b"body", True),
        ("PUT", "/c", "", b"onetw", True),
        ("HEAD", "/d", "", b"", False),
    ]


@given(st.lists(st.one_of(st.binary(max_size=50), st.sampled_from(PIECES)), max_size=40))
def test_no_bytes_make_the_reader_fail(pieces: list[bytes]) -> None:
    arrived = read(*pieces)
    refused = [index for index, one in enumerate(arrived) if isinstance(one, Refusal)]
    assert refused in ([], [len(arrived) - 1])


def test_headers_that_come_twice_are_joined_and_names_are_in_small_letters() -> None:
    [arrival] = read(request("/", Accept="a", ACCEPT="b"))
    assert isinstance(arrival, Arrival)
    assert arrival.request.headers["accept"] == "a, b"


def test_a_target_with_a_host_is_a_path() -> None:
    [arrival] = read(request("http://127.0.0.1/a?b=c"))
    assert isinstance(arrival, Arrival)
    assert (arrival.request.path, arrival.request.query) == ("/a", "b=c")


def test_every_request_has_an_id_of_its_own() -> None:
    arrived = [one.request for one in read(request() * 3) if isinstance(one, Arrival)]
    assert len({one.id for one in arrived}) == 3
    assert all(isinstance(one, Request) for one in arrived)
