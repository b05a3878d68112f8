"""What doors take and give, whatever carries it: a decoded request, a response, errors as problem JSON (RFC 9457)."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.doors.sessions import MakeSession
from headwater.errors import (
    Closed,
    DocumentExists,
    DocumentMissing,
    EncryptionKeyMissing,
    HeadwaterError,
    InvalidInput,
    JobError,
    JobMissing,
    KeyReused,
    LeaseLost,
    NotAllowed,
    Overloaded,
    PreconditionFailed,
    QueueFull,
    QueueMissing,
    ResyncRequired,
    StagingLost,
    StoreBusy,
    StoreError,
    StoreFull,
    StreamMismatch,
    TooLarge,
    UnknownRecord,
)
from headwater.model.json_names import check_names
from headwater.model.json_values import why_unread
from headwater.model.principal import OWNER, Principal

Value = TypeVar("Value")
Headers = tuple[tuple[str, str], ...]


def stay() -> None:
    """What `Request.park` does where the transport needs no word of it."""


def always() -> bool:
    """What `Request.is_known` says where nobody is asked for a credential."""
    return True


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a route sees it. Header names are in small letters; `id` is this request's, for logs and errors.

    `path` is as it was sent, percent signs and all, a character for each byte. `client` is the address it came from,
    `principal` who that is, as the guard in front of the routes found out. Of a request that `awaits_body` only the
    head has come: it is asked whether the rest is wanted, and the answer is `CONTINUE` or a refusal. A route calls
    `park` when it begins to wait for something that may not come for long: from then on a client that hangs up is taken
    for gone, and the route is cancelled. Who comes without a credential to a path that takes one later (`LATE_PATHS`)
    is nobody yet, and `identify` says whose the one is that they show then; None where nobody is asked. `is_known`
    tells whether the credential that came with it is good still, for what cannot be taken back once it is done. `used`
    are the queues that the route found to be theirs: after a wait they must be so still.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    id: str = ""
    client: str = ""
    principal: Principal = OWNER
    awaits_body: bool = False
    park: Callable[[], None] = stay
    identify: Callable[[str], Awaitable[Principal]] | None = None
    is_known: Callable[[], bool] = always
    used: list[str] | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a route answers. Length, date and connection are the transport's business.

    `chunks` follow the body for as long as they come, and make it a stream without a length. With a `session` the
    conversation goes on, as a WebSocket or as server-sent events. `undelivered` is called when the transport knows that
    the client did not get the answer. `done` says that what it tells has taken effect for good: it is given also to
    somebody who may not ask any more.
    """

    status: int = 200
    content_type: str = "application/json"
    body: bytes = b""
    headers: Headers = ()
    chunks: AsyncGenerator[bytes, None] | None = None
    session: MakeSession | None = None
    undelivered: Callable[[], None] | None = None
    done: bool = False


Handler = Callable[[Request], Awaitable[Response]]


# What watches over a server has no credential: these say that it runs, and nothing about what it holds.
OPEN_PATHS = frozenset({"/health", "/ready"})


def is_for_pages(path: str) -> bool:
    """Whether this is what pages are made of. It says nothing of a store, and no `import` sends a credential."""
    return path in ("/headwater.js", "/headwater.d.ts") or path.startswith(("/headwater/", "/demo/"))


# A page cannot send a header when it opens a WebSocket: it says who it is in its first message.
LATE_PATHS = frozenset({"/realtime/ws"})
_LASTING_PATHS = LATE_PATHS | {"/realtime/sse"}


def is_lasting(path: str) -> bool:
    """Whether a conversation there outlasts a credential: whoever has it asks again whose it is."""
    return path in _LASTING_PATHS or (path.startswith("/realtime/v1/databases/") and path.endswith("/sse"))


EVENT_STREAM = "text/event-stream"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as clients get it: `code` is stable, `detail` is for people. `error` is where queen-mq clients look.
    `document` is the id of the one that it is about, where several were handed in."""

    title: str
    status: int
    code: str
    detail: str
    error: str
    request_id: str = ""
    document: str = ""


class BrokenOff(Exception):
    """Raised by the chunks of an answer that ends before it is whole. The transport breaks the connection off, without
    the end that would make it look whole to a client or a proxy."""


class Refused(Exception):
    """A request that the door itself refuses, before any service saw it."""

    def __init__(self, status: int, code: str, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers


_encoder = msgspec.json.Encoder()


def json_response(value: object, *, status: int = 200, headers: Headers = ()) -> Response:
    """A value as JSON."""
    return Response(status=status, body=_encoder.encode(value), headers=headers)


def text_response(text: str, content_type: str = "text/plain; charset=utf-8") -> Response:
    """A page of text."""
    return Response(content_type=content_type, body=text.encode())


def empty_response() -> Response:
    """There is nothing, and that is all there is to say."""
    return NOTHING


NOTHING = Response(status=HTTPStatus.NO_CONTENT)
CONTINUE = Response(status=HTTPStatus.CONTINUE)


def problem_response(
    status: int, code: str, detail: str, *, request_id: str = "", headers: Headers = (), document: str = ""
) -> Response:
    """An error as problem JSON."""
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        error=detail,
        request_id=request_id,
        document=document,
    )
    return Response(
        status=status, content_type="application/problem+json", body=_encoder.encode(problem), headers=headers
    )


def no_room(request_id: str = "") -> Response:
    """There is no room for another body now."""
    detail = "too many bytes of requests are under way already; try again later"
    return problem_response(503, "overloaded", detail, request_id=request_id, headers=(("retry-after", "1"),))


def too_much_to_take(request_id: str = "") -> Response:
    """There is no room for another answer to somebody who has not taken those before."""
    detail = "too many bytes of answers wait to be taken already; take them, then ask again"
    return problem_response(503, "overloaded", detail, request_id=request_id, headers=(("retry-after", "1"),))


def not_delivered(response: Response) -> None:
    """Let whoever made an answer know that nobody got it."""
    if response.undelivered is not None:
        response.undelivered()


def can_be_asked_again(request: Request, response: Response) -> bool:
    """Whether nothing is lost with an answer that is not given: it only tells, or what it gives is given back."""
    return not response.done and (request.method == "GET" or response.undelivered is not None)


# The first that fits counts, so leaves stand before their branches.
_statuses: tuple[tuple[type[HeadwaterError], HTTPStatus], ...] = (
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (InvalidInput, HTTPStatus.BAD_REQUEST),
    (NotAllowed, HTTPStatus.FORBIDDEN),
    (QueueMissing, HTTPStatus.NOT_FOUND),
    (JobMissing, HTTPStatus.NOT_FOUND),
    (JobError, HTTPStatus.CONFLICT),
    (DocumentMissing, HTTPStatus.NOT_FOUND),
    (PreconditionFailed, HTTPStatus.PRECONDITION_FAILED),
    (DocumentExists, HTTPStatus.CONFLICT),
    (QueueFull, HTTPStatus.TOO_MANY_REQUESTS),
    (Overloaded, HTTPStatus.TOO_MANY_REQUESTS),
    (LeaseLost, HTTPStatus.CONFLICT),
    (KeyReused, HTTPStatus.CONFLICT),
    (UnknownRecord, HTTPStatus.CONFLICT),
    (ResyncRequired, HTTPStatus.CONFLICT),
    (StagingLost, HTTPStatus.CONFLICT),
    (StreamMismatch, HTTPStatus.CONFLICT),
    (EncryptionKeyMissing, HTTPStatus.CONFLICT),
    (StoreFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (StoreBusy, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (Closed, HTTPStatus.SERVICE_UNAVAILABLE),
)


def status_of(error: HeadwaterError) -> HTTPStatus:
    """The status that says what a client can do about an error."""
    for kind, status in _statuses:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def error_response(error: HeadwaterError, request_id: str = "") -> Response:
    """An error of the services. What the store says of itself stays here: it may name places and statements."""
    headers = (("retry-after", "1"),) if error.retryable else ()
    detail = public_detail(error)
    about = getattr(error, "document", "")
    return problem_response(
        status_of(error), error.code, detail, request_id=request_id, headers=headers, document=about
    )


def public_detail(error: HeadwaterError) -> str:
    """What a client is told of an error."""
    if isinstance(error, StoreError) and not isinstance(error, EncryptionKeyMissing):
        return (type(error).__doc__ or "the store did not take it").strip().partition("\n")[0]
    return str(error)


# ── reading what was sent ──

# In PHP an empty object and an empty list are one thing, and go over the wire as a list.
_nothing = frozenset((b"", b"[]"))


# Bodies up to this size are looked through for names that stand twice in one object: people write those, and programs
# that write larger ones take them from maps, which have no name twice.
NAMES_CHECKED_BYTES_MAX = 4_096


def decode_body(body: bytes, decoder: "msgspec.json.Decoder[Value]") -> Value:
    """The body as a value; what is not that raises and says where. An empty body is an empty object."""
    if body in _nothing:
        body = b"{}"
    try:
        # Parts that are kept as bytes are not decoded, so their letters are looked at here.
        if not body.isascii():
            body.decode()
        value = decoder.decode(body)
        if len(body) <= NAMES_CHECKED_BYTES_MAX:
            check_names(body)
        return value
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deep") from None
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the body is not what was expected: {why_unread(body, error)}") from None


def decode_query(found: dict[str, str], kind: type[Value]) -> Value:
    """The query as a value; a name that nobody knows is passed over."""
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the query is not what was expected: {error}") from None


def parse_query(query: str) -> dict[str, str]:
    """Names and texts of a query; a name that comes twice is refused."""
    if not query:
        return {}
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        name, value = (plain_text(text.replace("+", " "), "query") for text in (name, value))
        if name in found:
            raise InvalidInput(f"the query has {name!r:.80} more than once")
        if name:
            found[name] = value
    return found


def plain_text(sent: str, part: str, refusal: type[HeadwaterError] = InvalidInput) -> str:
    """A part of an address as it is meant, without percent signs: its bytes are UTF-8, whether they were written with
    them or as they are. Raises when they are not: what cannot be read would all be one name otherwise."""
    if "%" not in sent and sent.isascii():
        return sent
    try:
        return unquote_to_bytes(sent.encode("latin-1")).decode()
    except UnicodeError:
        raise refusal(f"the {part} is not UTF-8") from None
