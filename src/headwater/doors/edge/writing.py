"""From responses to bytes."""

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from headwater.doors.wire import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

# Answers that have no body by their nature must not say that they have an empty one.
_bodiless = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


def encode_response(response: Response, *, keep_alive: bool, with_body: bool = True) -> bytes:
    """The response as it goes over the wire; an answer to HEAD has the headers of its body and not the body."""
    start = _start(response.status, response.content_type, keep_alive)
    more = _header_lines(response.headers) if response.headers else b""
    if response.status in _bodiless:
        return b"%sdate: %s\r\n%s\r\n" % (start, _date(int(time.time())), more)
    body = response.body
    head = b"%sdate: %s\r\n%scontent-length: %d\r\n\r\n" % (start, _date(int(time.time())), more, len(body))
    return head + body if with_body else head


def encode_stream_head(response: Response, *, keep_alive: bool, takes_chunks: bool) -> bytes:
    """The head of an answer whose length nobody knows yet."""
    start = _start(response.status, response.content_type, keep_alive and takes_chunks)
    more = _header_lines(response.headers) if response.headers else b""
    how = b"transfer-encoding: chunked\r\n" if takes_chunks else b""
    return b"%sdate: %s\r\n%s%s\r\n" % (start, _date(int(time.time())), more, how)


def encode_upgrade(key: str) -> bytes:
    """The head that ends HTTP on a connection: from here on it is a WebSocket."""
    lines = (
        "HTTP/1.1 101 Switching Protocols",
        "upgrade: websocket",
        "connection: Upgrade",
        f"sec-websocket-accept: {key}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    """A part of such an answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def _start(status: int, content_type: str, keep_alive: bool) -> bytes:
    """The lines that many answers have in common."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if status not in _bodiless:
        lines.append(_header_line("content-type", content_type))
    lines += ["cache-control: no-store", "x-content-type-options: nosniff"]
    if not keep_alive:
        lines.append("connection: close")
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def _header_lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    return "".join(f"{_header_line(name, value)}\r\n" for name, value in headers).encode("latin-1")


def _header_line(name: str, value: str) -> str:
    if any(mark in part for part in (name, value) for mark in "\r\n\0"):
        raise ValueError(f"the response header {name!r} would break the response apart")
    return f"{name}: {value}"


@lru_cache(maxsize=4)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
