"""Keeps foreign pages out. A browser on this machine can reach this server, and any page can make it send requests; but
the browser says where a request comes from. Programs (curl, the SDKs) say nothing of the kind and are let through.

    `Origin`            must be this server's own, or one that was allowed
    `Sec-Fetch-Site`    tells of an image or a form that has no Origin; a foreign page may only lead to a page of ours
    `Sec-Fetch-Dest`    a link leads to a document: what is put into a frame of a foreign page is none
    `Content-Type`      of what a page writes must be JSON: that, a foreign page cannot send without being asked about

An origin that was allowed is answered by name, never by `*`.
"""

from collections.abc import Awaitable, Collection
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from headwater.doors.access.refusals import refuse
from headwater.doors.wire import Handler, Request, Response

READS = frozenset({"GET", "HEAD", "OPTIONS"})
# What a link on a foreign page may lead to; everything else is for programs.
PAGES = frozenset({"/"})
JSON_TYPES = frozenset({"application/json", "application/x-queen-push", "application/x-ndjson"})
PREFLIGHT_SECONDS = "600"
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def for_our_pages(handler: Handler, origins: Collection[str] = ()) -> Handler:
    """The same door, closed to pages of other origins than this server's own and `origins`."""
    allowed = frozenset(origins)

    def answer(request: Request) -> Awaitable[Response]:
        headers = request.headers
        is_program = "origin" not in headers and "sec-fetch-site" not in headers
        return handler(request) if is_program else answer_page(request)

    async def answer_page(request: Request) -> Response:
        origin = request.headers.get("origin")
        problem = judge_page(request, allowed)
        if problem is not None:
            return refuse(request, *problem)
        if origin not in allowed or origin is None:
            return await handler(request)
        response = preflight(request) if is_preflight(request) else await handler(request)
        return named(response, origin)

    return answer


def judge_page(request: Request, allowed: Collection[str]) -> tuple[HTTPStatus, str, str] | None:
    """What speaks against a request that a browser sent for a page: status, code and reason; None when nothing does."""
    if not is_from_us(request, allowed):
        return (
            HTTPStatus.FORBIDDEN,
            "origin_not_allowed",
            "this page may not use this server; allow its origin if it is yours",
        )
    if request.method not in READS and request.body and content_type(request) not in JSON_TYPES:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", "a page writes with content-type: application/json"
    return None


def is_from_us(request: Request, allowed: Collection[str]) -> bool:
    """Whether a request comes from a page of ours, or leads from anywhere to a page of ours."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin in allowed or is_same_origin(origin, request.headers.get("host", ""))
    # Without an origin it reads. `none` is somebody who typed the address, `same-origin` a page of ours.
    site = request.headers.get("sec-fetch-site")
    is_document = request.headers.get("sec-fetch-dest", "document") == "document"
    is_link = is_document and request.headers.get("sec-fetch-mode") == "navigate" and request.path in PAGES
    return site in ("none", "same-origin") or (is_link and request.method in READS)


def is_same_origin(origin: str, host: str) -> bool:
    """Whether a page's origin is the host that the request was sent to; the usual port may be left out."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    port = DEFAULT_PORTS.get(parts.scheme)
    if port is None or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        return False
    return parts.netloc.lower().removesuffix(port) == host.lower().removesuffix(port)


def content_type(request: Request) -> str:
    """The type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_preflight(request: Request) -> bool:
    """Whether the browser asks if a page may."""
    return request.method == "OPTIONS" and "access-control-request-method" in request.headers


def preflight(request: Request) -> Response:
    """Yes."""
    return Response(
        status=HTTPStatus.NO_CONTENT,
        headers=(
            ("access-control-allow-methods", "GET, POST, PUT, PATCH, DELETE"),
            ("access-control-allow-headers", "authorization, content-type, idempotency-key"),
            ("access-control-max-age", PREFLIGHT_SECONDS),
        ),
    )


def named(response: Response, origin: str) -> Response:
    """The answer, for this origin to read: said once, also where another server has said it before."""
    cors = {"access-control-allow-origin": origin, "vary": "origin"}
    others = [header for header in response.headers if header not in cors.items()]
    return msgspec.structs.replace(response, headers=(*others, *cors.items()))
