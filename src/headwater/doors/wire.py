"""What doors take and give, whatever carries it: a decoded request, a response, errors as problem JSON (RFC 9457)."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec

from headwater.model.principal import OWNER, Principal


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a route sees it. Header names are in small letters; `id` is this request's, for logs and errors.

    `client` is the address it came from, `principal` who that is, as the guard in front of the routes found out.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    id: str = ""
    client: str = ""
    principal: Principal = OWNER


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a route answers. Length, date and connection are the transport's business."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Response]]


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as clients get it: `code` is stable, `detail` is for people."""

    title: str
    status: int
    code: str
    detail: str
    request_id: str = ""


def json_response(value: Any, *, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(status=status, body=msgspec.json.encode(value))


def text_response(text: str) -> Response:
    """A page of plain text."""
    return Response(content_type="text/plain; charset=utf-8", body=text.encode())


def problem_response(
    status: int, code: str, detail: str, *, request_id: str = "", headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An error as problem JSON."""
    problem = Problem(title=HTTPStatus(status).phrase, status=status, code=code, detail=detail, request_id=request_id)
    return Response(
        status=status, content_type="application/problem+json", body=msgspec.json.encode(problem), headers=headers
    )
