"""Requests that two programs could read in two ways: none of them is taken, and nothing after them is looked at.

Each is followed by a request that only somebody who read it in the other way would see as one of its own.
"""

import pytest

from headwater.doors.edge.limits import Limits
from headwater.doors.edge.reading import Arrival, Refusal, RequestReader
from headwater.doors.hosts import host_name, is_sound_host

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"5\r\nhello\r\n0\r\n\r\n"


def post(*headers: bytes, version: bytes = b"1.1", host: bytes = b"host: localhost", target: bytes = b"/") -> bytes:
    lines = [b"POST " + target + b" HTTP/" + version, *([host] if host else []), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


CORPUS = {
    # where the request ends
    "chunked in HTTP/1.0": post(b"transfer-encoding: chunked", version=b"1.0") + CHUNKED,
    "gzip before chunked": post(b"transfer-encoding: gzip, chunked") + CHUNKED,
    "chunked before gzip": post(b"transfer-encoding: chunked, gzip") + CHUNKED,
    "chunked twice": post(b"transfer-encoding: chunked, chunked") + CHUNKED,
    "chunked in two headers": post(b"transfer-encoding: chunked", b"transfer-encoding: chunked") + CHUNKED,
    "identity in a second header": post(b"transfer-encoding: chunked", b"transfer-encoding: identity") + CHUNKED,
    "only identity": post(b"transfer-encoding: identity") + CHUNKED,
    "only gzip": post(b"transfer-encoding: gzip") + CHUNKED,
    "a coding that is none": post(b"transfer-encoding: xchunked") + CHUNKED,
    "chunked in quotes": post(b'transfer-encoding: "chunked"') + CHUNKED,
    "an empty coding": post(b"transfer-encoding:") + CHUNKED,
    "chunked with a parameter": post(b"transfer-encoding: chunked;q=1") + CHUNKED,
    "a tab within the coding": post(b"transfer-encoding: chun\tked") + CHUNKED,
    "a vertical tab before chunked": post(b"transfer-encoding: \x0bchunked") + CHUNKED,
    "length and coding": post(b"content-length: 5", b"transfer-encoding: chunked") + CHUNKED,
    "coding and length": post(b"transfer-encoding: chunked", b"content-length: 5") + CHUNKED,
    "length 0 and coding": post(b"content-length: 0", b"transfer-encoding: chunked") + CHUNKED,
    "length and coding in HTTP/1.0": post(b"content-length: 5", b"transfer-encoding: chunked", version=b"1.0"),
    "two lengths": post(b"content-length: 5", b"content-length: 6") + b"hello",
    "the same length twice": post(b"content-length: 5", b"content-length: 5") + b"hello",
    "two lengths in one header": post(b"content-length: 5, 5") + b"hello",
    "a length with a sign": post(b"content-length: +5") + b"hello",
    "a length below 0": post(b"content-length: -1") + b"hello",
    "a length in other digits": post(b"content-length: 0x5") + b"hello",
    "a length with an underscore": post(b"content-length: 1_0") + b"hello",
    "a length that is too long": post(b"content-length: 18446744073709551621") + b"hello",
    "an empty length": post(b"content-length:") + b"hello",
    "a chunk with a sign": post(b"transfer-encoding: chunked") + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk in 0x": post(b"transfer-encoding: chunked") + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk that is too long": post(b"transfer-encoding: chunked") + b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a chunk without its end": post(b"transfer-encoding: chunked") + b"5\r\nhelloX0\r\n\r\n",
    # how lines end and go on
    "a header that goes on in the next line": post(b"transfer-encoding: chunked,\r\n identity") + CHUNKED,
    "a first header that begins with a space": b"POST / HTTP/1.1\r\n host: localhost\r\n\r\n",
    "a space before the colon": post(b"transfer-encoding : chunked") + CHUNKED,
    "a tab before the colon": post(b"content-length\t: 5") + b"hello",
    "a NUL in a value": post(b"x-note: a\x00b"),
    "a bare CR in a value": post(b"x-note: a\rtransfer-encoding: chunked") + CHUNKED,
    "a NUL in a name": post(b"content-length\x00: 5") + b"hello",
    "a header without a colon": post(b"content-length 5") + b"hello",
    "a header without a name": post(b": 5") + b"hello",
    # whom it is for
    "two hosts": post(b"host: evil.example"),
    "the same host twice": post(b"host: localhost"),
    "two hosts in one header": post(host=b"host: localhost, evil.example"),
    "no host": post(host=b""),
    "a user before the host": post(host=b"host: localhost:80@evil.example"),
    "a user and the host": post(host=b"host: localhost@evil.example"),
    "a path behind the host": post(host=b"host: localhost/evil.example"),
    "a fragment behind the host": post(host=b"host: localhost#evil.example"),
    "a query behind the host": post(host=b"host: localhost?evil.example"),
    "a backslash behind the host": post(host=b"host: localhost\\evil.example"),
    "a space in the host": post(host=b"host: localhost evil.example"),
    "a port in letters": post(host=b"host: localhost:http"),
    "a port that is too long": post(host=b"host: localhost:800000"),
    "two ports": post(host=b"host: localhost:80:80"),
    "half a bracket": post(host=b"host: [::1"),
    "letters behind the bracket": post(host=b"host: [::1]evil.example"),
    "letters beyond ASCII in the host": post(host="host: löcalhost".encode()),
    "another host in the target": post(target=b"http://evil.example/"),
    "another port in the target": post(target=b"http://localhost:81/"),
    "a user in the target": post(target=b"http://localhost@evil.example/", host=b"host: localhost"),
    "a user in both": post(target=b"http://a@localhost/", host=b"host: a@localhost"),
    "another host in a target of HTTP/1.0": post(target=b"http://evil.example/", version=b"1.0"),
    "a target that is no path": post(target=b"localhost"),
}


def read(data: bytes, piece: int) -> list[Arrival | Refusal]:
    reader = RequestReader(Limits())
    return [arrived for at in range(0, len(data), piece) for arrived in reader.feed(data[at : at + piece])]


@pytest.mark.parametrize("piece", [1, 7, 100_000])
@pytest.mark.parametrize("case", CORPUS)
def test_what_could_be_read_in_two_ways_is_refused_and_ends_the_connection(case: str, piece: int) -> None:
    arrived = read(CORPUS[case] + SMUGGLED, piece)
    assert [type(one) for one in arrived] == [Refusal], arrived
    (refusal,) = arrived
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "bad_request")


GOOD = {
    "chunked": post(b"transfer-encoding: chunked") + CHUNKED,
    "chunked in large letters": post(b"Transfer-Encoding: CHUNKED") + CHUNKED,
    "a length": post(b"content-length: 5") + b"hello",
    "a host with a port": post(host=b"host: localhost:6632"),
    "an address": post(host=b"host: [::1]:6632"),
    "no host to name": post(host=b"host:"),
    "an address as target": post(target=b"http://localhost/"),
    "HTTP/1.0 with a length": post(b"content-length: 5", version=b"1.0") + b"hello",
    "an address as target of HTTP/1.0": post(target=b"http://localhost/", version=b"1.0", host=b""),
}


@pytest.mark.parametrize("piece", [1, 7, 100_000])
@pytest.mark.parametrize("case", GOOD)
def test_what_can_be_read_in_one_way_only_is_taken(case: str, piece: int) -> None:
    """Otherwise the test above could refuse everything."""
    arrived = read(GOOD[case], piece)
    assert [type(one) for one in arrived] == [Arrival], arrived


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost:80@evil.example", ""),
        ("[::1]@evil.example", ""),
        ("", ""),
        ("a" * 256, ""),
    ],
)
def test_a_host_header_has_a_name_or_none(header: str, name: str) -> None:
    assert host_name(header) == name
    assert is_sound_host(header) is bool(name or not header)
