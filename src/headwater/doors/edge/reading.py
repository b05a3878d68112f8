"""From bytes to requests, without any I/O: what a client sends goes in, requests and refusals come out, in order.

httptools parses; this keeps the bounds. A refusal ends the conversation: what comes after it is not looked at, because
a client whose words were misread once may mean anything by the next ones.
"""

import itertools
import re
import secrets
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus

import httptools
import msgspec

from headwater.doors.edge.limits import Limits
from headwater.doors.hosts import is_sound_host
from headwater.doors.wire import Request, stay

# The parser tells of a header when it is complete; feeding it in pieces bounds what it gathers until then. Of a body it
# tells at once.
FEED_BYTES = 4_096
FEED_BODY_BYTES = 65_536

# Names of headers as they were sent, and in small letters: the same ones come with every request.
_names: dict[bytes, str] = {}
NAMES_MAX = 1_000

# Request ids are for finding a request in the log, not for secrets: one number for the process, one for the request.
_process = secrets.token_hex(4)
_numbers = itertools.count(1)


class Phase(Enum):
    """Where in a request the last byte was."""

    BETWEEN = "between"
    HEAD = "head"
    BODY = "body"


class Arrival(msgspec.Struct, frozen=True):
    """A complete request, whether its client wants to go on afterwards, and whether it takes an answer in chunks."""

    request: Request
    keep_alive: bool
    takes_chunks: bool


class Refusal(Exception):
    """Why a request is not taken. The connection ends with it."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class RequestReader:
    """Reads the requests of one connection. `number` counts them, the one under way included."""

    __slots__ = (
        "_arrived",
        "_body",
        "_body_bytes",
        "_client",
        "_head_bytes",
        "_headers",
        "_is_new",
        "_keep_alive",
        "_limits",
        "_park",
        "_parser",
        "_path",
        "_progress",
        "_query",
        "_quiet_bytes",
        "_refusal",
        "_url",
        "behind",
        "continue_expected",
        "finished",
        "number",
        "phase",
        "unread",
    )

    def __init__(self, limits: Limits, client: str = "", park: Callable[[], None] = stay) -> None:
        self._limits = limits
        self._client = client
        self._park = park
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._arrived: list[Arrival | Refusal] = []
        self._refusal: Refusal | None = None
        self._progress = 0
        self._quiet_bytes = 0
        self.phase = Phase.BETWEEN
        self.number = 0
        self.finished = False
        self.continue_expected = False
        self.unread = b""
        # What came behind a request that asked for another protocol; None when there is no such request.
        self.behind: bytes | None = None

    def feed(self, data: bytes) -> list[Arrival | Refusal]:
        """What these bytes complete. When that is a lot, the rest is kept as `unread`: feed nothing to go on."""
        if self.behind is not None:
            self.behind += data
            return []
        if self.unread:
            data, self.unread = self.unread + data, b""
        if len(data) <= FEED_BYTES:
            if not self.finished and data:
                self._feed_piece(data)
        else:
            self._feed_pieces(data)
        arrived, self._arrived = self._arrived, []
        return arrived

    def _feed_pieces(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self.finished:
            if len(self._arrived) >= self._limits.pipeline_max:
                self.unread = data[start:]
                return
            size = FEED_BODY_BYTES if self.phase is Phase.BODY else FEED_BYTES
            self._feed_piece(data[start : start + size])
            start += size
        if self.behind is not None:
            self.behind += data[start:]

    @property
    def holds_enough(self) -> bool:
        """Whether no more is held for another protocol before it is decided whether that is spoken."""
        return self.behind is not None and len(self.behind) > self._limits.head_bytes_max

    def rest(self) -> None:
        """Nothing is read for a while: between two requests the parser is let go, and made anew when bytes come."""
        if self.phase is Phase.BETWEEN and not self.finished and not self._arrived:
            self._parser = None
            self._url = b""

    def refuse(self, refusal: Refusal) -> list[Arrival | Refusal]:
        """End the conversation from this side."""
        self.finished = True
        return [refusal]

    def _feed_piece(self, piece: bytes) -> None:
        progress = self._progress
        try:
            if self._parser is None:
                self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(piece)
            if self._progress == progress:
                self._count_quiet(len(piece))
            else:
                self._quiet_bytes = 0
        except httptools.HttpParserUpgrade as upgrade:
            # The request is the last one: what follows is no HTTP, if its route agrees, and else nothing.
            self.finished = True
            self.behind = piece[upgrade.args[0] :]
            self._parser = None
        except (httptools.HttpParserError, Refusal) as error:
            # After a request that said it was the last, the parser calls everything an error; nobody waits for it.
            if not self.finished:
                self._arrived.append(self._refusal or (error if isinstance(error, Refusal) else _malformed()))
                self.finished = True

    def _count_quiet(self, count: int) -> None:
        """Bytes of which the parser told nothing: an endless line. They count like a head that is too long."""
        self._quiet_bytes += count
        if self._quiet_bytes > self._limits.head_bytes_max and self.phase is not Phase.BETWEEN:
            raise self._head_too_large()

    # ── what the parser calls; an exception here reaches `_feed_piece` as an HttpParserError ──

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._progress += 1
        self.phase = Phase.HEAD
        self.number += 1
        self._url = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_url(self, piece: bytes) -> None:
        """A part of the request's target."""
        self._url += piece
        self._count_head(len(piece))

    def on_header(self, name: bytes, value: bytes | None) -> None:
        """One header, or after the body one trailer, which is counted and dropped."""
        value = value or b""
        self._count_head(len(name) + len(value) + 4)
        if self.phase is not Phase.HEAD:
            return
        word = _names.get(name) or _small_name(name)
        if word in self._headers:
            self._repeat_header(word, value.decode("latin-1").strip())
        else:
            self._headers[word] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """The end of the head: everything that can be refused without reading the body is refused here."""
        self._progress += 1
        self.phase = Phase.BODY
        parser = self._parser
        assert parser is not None
        version = parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise self._refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "http_version", "HTTP/1.1 is spoken here")
        if version == "1.1" and "host" not in self._headers:
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "a request needs a Host header")
        self._check_framing(version)
        self._path, _, self._query = self._target().partition("?")
        if not is_sound_host(self._headers.get("host", "")):
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "the Host header names no host")
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.body_bytes_max:
            raise self._body_too_large()
        self._is_new = version == "1.1"
        self._keep_alive = version == "1.1" and parser.should_keep_alive() and not parser.should_upgrade()
        self.continue_expected = version == "1.1" and self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, piece: bytes) -> None:
        """A part of the body."""
        self._progress += 1
        self._body_bytes += len(piece)
        if self._body_bytes > self._limits.body_bytes_max:
            raise self._body_too_large()
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._progress += 1
        self.phase = Phase.BETWEEN
        self.continue_expected = False
        self._arrived.append(Arrival(self._request(), self._keep_alive, self._is_new))
        self._body = []
        self.finished = not self._keep_alive

    # ── the request, put together ──

    @property
    def awaits_body(self) -> bool:
        """Whether the head of a request is there and its body is not, or not all of it."""
        return self.phase is Phase.BODY and not self.finished

    @property
    def body_bytes(self) -> int:
        """How large the body is that is being read: as its head says, or as much as has come."""
        length = self._headers.get("content-length", "0")
        return max(int(length) if length.isdigit() else 0, self._body_bytes)

    def head(self) -> Request:
        """The request whose body is being read."""
        return self._request(awaits_body=True)

    def _request(self, *, awaits_body: bool = False) -> Request:
        assert self._parser is not None
        return Request(
            method=self._parser.get_method().decode("latin-1"),
            path=self._path,
            query=self._query,
            headers=self._headers,
            body=b"" if awaits_body else self._body[0] if len(self._body) == 1 else b"".join(self._body),
            id=f"{_process}{next(_numbers):08x}",
            client=self._client,
            awaits_body=awaits_body,
            park=self._park,
        )

    def _check_framing(self, version: str) -> None:
        """Where a request ends is said in one way only, and in one that everybody in between reads alike."""
        coding = self._headers.get("transfer-encoding")
        if coding is None:
            return
        if version == "1.0":
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "HTTP/1.0 has no Transfer-Encoding")
        if "content-length" in self._headers:
            detail = "a request has Content-Length or Transfer-Encoding, not both"
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", detail)
        if coding.lower() != "chunked":
            detail = "the only Transfer-Encoding that is taken is chunked"
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", detail)

    def _target(self) -> str:
        """Path and query. Most targets are just that; a whole address is taken apart."""
        url = self._url
        if url[:1] == b"/" and b"#" not in url:
            return url.decode("latin-1")
        try:
            target = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "the target is no path") from None
        if url[:1] != b"/":
            self._check_authority(url)
        return b"?".join((target.path or b"/", target.query or b"")).decode("latin-1")

    def _check_authority(self, url: bytes) -> None:
        """An address as target names the same host as `Host` does: nobody can say which of two would count."""
        authority = re.split(rb"[/?#]", url.partition(b"://")[2], maxsplit=1)[0].decode("latin-1")
        if authority.lower() != self._headers.setdefault("host", authority).lower():
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "the target names another host than Host does")

    def _repeat_header(self, name: str, value: str) -> None:
        if name == "host":
            raise self._refused(HTTPStatus.BAD_REQUEST, "bad_request", "a request has one Host header")
        self._headers[name] = f"{self._headers[name]}, {value}"

    def _count_head(self, count: int) -> None:
        self._progress += 1
        self._head_bytes += count
        if self._head_bytes > self._limits.head_bytes_max:
            raise self._head_too_large()

    # ── refusing ──

    def _refused(self, status: HTTPStatus, code: str, detail: str) -> Refusal:
        """The parser wraps what its callbacks raise, so the reason is kept aside."""
        self._refusal = Refusal(status, code, detail)
        return self._refusal

    def _head_too_large(self) -> Refusal:
        detail = f"request line and headers may have {self._limits.head_bytes_max:,} bytes"
        return self._refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", detail)

    def _body_too_large(self) -> Refusal:
        detail = f"a body may have {self._limits.body_bytes_max:,} bytes"
        return self._refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", detail)


def _small_name(name: bytes) -> str:
    word = name.decode("latin-1").lower()
    if len(_names) < NAMES_MAX:
        _names[name] = word
    return word


def _malformed() -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "bad_request", "this is not a valid HTTP/1.1 request")
