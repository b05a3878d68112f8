"""From responses to bytes."""

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from headwater.doors.wire import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def encode_response(response: Response, *, keep_alive: bool, with_body: bool = True) -> bytes:
    """The response as it goes over the wire; an answer to HEAD has the headers of its body and not the body."""
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"date: {_date(int(time.time()))}",
        f"content-type: {response.content_type}",
        f"content-length: {len(response.body)}",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        *(_header_line(name, value) for name, value in response.headers),
    ]
    if not keep_alive:
        lines.append("connection: close")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + response.body if with_body else head


def _header_line(name: str, value: str) -> str:
    if any(mark in part for part in (name, value) for mark in "\r\n\0"):
        raise ValueError(f"the response header {name!r} would break the response apart")
    return f"{name}: {value}"


@lru_cache(maxsize=4)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
