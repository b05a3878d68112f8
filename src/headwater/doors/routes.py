"""Routes as data, and the one router that finds them.

    request ─► path → route ─► may they? ─► body and query decoded ─► handler ─► response

A route says what it needs and what it takes; the router checks it. Handlers are plain functions of a site, a request
and values that were decoded before.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from headwater.doors.site import Site, check_scope
from headwater.doors.strict_types import strict_type
from headwater.doors.wire import (
    CONTINUE,
    Refused,
    Request,
    Response,
    decode_body,
    decode_query,
    error_response,
    parse_query,
    plain_text,
    problem_response,
)
from headwater.errors import HeadwaterError, InvalidInput, InvalidName, StoreBusy, StoreFull, StoreReplaced
from headwater.model.principal import Scope
from headwater.outage import OUTAGES

log = logging.getLogger(__name__)

# Paths come again and again; what they lead to is remembered for this many.
REMEMBERED_MAX = 10_000
# Names may have slashes, so a path can be taken apart in several ways; this bounds how many are tried.
STEPS_MAX = 40

# Where an answer says what was odd about its question.
WARNING_HEADER = "x-headwater-warning"

# What requests that lead nowhere are counted under: their paths are anybody's.
UNMATCHED = "unmatched"

RouteHandler = Callable[..., Awaitable[Response]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked over HTTP.

    The handler is called with the site, the request, the body as `takes` (if any), the query as `asks` (if any), and
    the names in the path, in this order. What it says of its parameters `body` and `query` is what these are, unless
    the route says otherwise. `gives` is the type of a good answer's body, `status` its status. Without a
    `scope` everybody may ask; where there is one, each of `or_scopes` will do as well, and `and_scope` is needed, too.
    What `changes` something is not answered to HEAD, although it goes by GET. The OpenAPI document says by
    `content_types` what a good answer is when it is no JSON, and by `may_be_empty` that it may be 204.

    Names in a query or in the fields of a body that nobody knows are refused: they are mistyped more often than not.
    Where the route is `lenient`, because it speaks the words of clients that others write, they are passed over and the
    answer warns of them, unless the body's type itself has no room for them because they could change what is done.
    Where a body has several parts, `blame` makes of what is wrong with it an error that says with which of them.
    """

    method: str
    path: str
    handler: RouteHandler
    summary: str
    scope: Scope | None = None
    or_scopes: tuple[Scope, ...] = ()
    and_scope: Scope | None = None
    takes: Any = None
    asks: Any = None
    gives: object = None
    status: int = 200
    changes: bool = False
    content_types: tuple[str, ...] = ("application/json",)
    may_be_empty: bool = False
    lenient: bool = False
    blame: Callable[[InvalidInput, bytes], HeadwaterError] | None = None

    def __post_init__(self) -> None:
        annotations = inspect.get_annotations(self.handler, eval_str=True)
        for field, parameter in (("takes", "body"), ("asks", "query")):
            kind = annotations.get(parameter, Any)
            if getattr(self, field) is None and kind is not Any:
                msgspec.structs.force_setattr(self, field, kind)


class _Endpoint:
    """A route, ready to be called."""

    __slots__ = ("asks", "decoder", "handler", "names", "or_scopes", "route", "scope", "strict_decoder")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.handler = route.handler
        self.scope = route.scope
        self.or_scopes = route.or_scopes
        self.asks = route.asks
        self.names = frozenset() if route.asks is None else frozenset(_field_names(route.asks))
        self.decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)
        self.strict_decoder = msgspec.json.Decoder(strict_type(route.takes)) if self.decoder and route.lenient else None


class _Place:
    """A step of a path: what may follow, by word or by any name, and what is here, by method."""

    __slots__ = ("by_method", "named", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Place] = {}
        self.named: _Place | None = None
        self.by_method: dict[str, _Endpoint] = {}


class Router:
    """Answers requests by their routes. A `Handler`.

    `absent` says of paths that somebody may well ask for, and of all below them, why there is nothing.
    """

    def __init__(self, site: Site, routes: Sequence[Route], absent: Mapping[str, str] = MappingProxyType({})) -> None:
        self.routes = tuple(routes)
        self.site = site
        self._absent = absent
        self._root = _Place()
        self._remembered: dict[str, tuple[_Place, tuple[str, ...]]] = {}
        for route in routes:
            self._add(route)

    async def __call__(self, request: Request) -> Response:
        """The answer; what a service or the door refuses is told as a problem."""
        path = UNMATCHED
        try:
            endpoint, names = self._find(request)
            path = endpoint.route.path
            if request.awaits_body:
                return CONTINUE
            warnings: list[str] = []
            response = await endpoint.handler(self.site, request, *_values(endpoint, request, warnings), *names)
            if warnings:
                response = _with_warnings(response, warnings)
        except HeadwaterError as error:
            response = _refusal(request, error)
        except Refused as refused:
            response = problem_response(
                refused.status, refused.code, str(refused), request_id=request.id, headers=refused.headers
            )
        self.site.answered(request.method if path is not UNMATCHED else "", path, response.status)
        return response

    def _add(self, route: Route) -> None:
        place = self._root
        for step in route.path.split("/")[1:]:
            if step.startswith("{"):
                place.named = place.named or _Place()
                place = place.named
            else:
                place = place.words.setdefault(step, _Place())
        if route.method in place.by_method:
            raise ValueError(f"two routes for {route.method} {route.path}")
        place.by_method[route.method] = endpoint = _Endpoint(route)
        if route.method == "GET" and not route.changes:
            place.by_method["HEAD"] = endpoint

    def _find(self, request: Request) -> tuple[_Endpoint, tuple[str, ...]]:
        place, names = self._remembered.get(request.path) or self._look_up(request.path)
        endpoint = place.by_method.get(request.method)
        if endpoint is None:
            allowed = ", ".join(sorted(place.by_method))
            raise Refused(405, "method_not_allowed", f"this path takes {allowed}", (("allow", allowed),))
        if endpoint.scope is not None:
            check_scope(request, endpoint.scope, endpoint.or_scopes)
        if endpoint.route.and_scope is not None:
            check_scope(request, endpoint.route.and_scope)
        return endpoint, names

    def _look_up(self, path: str) -> tuple[_Place, tuple[str, ...]]:
        plain_text(path, "path", InvalidName)
        steps = path.split("/")
        found = _walk(self._root, steps, 1, ()) if not steps[0] and len(steps) <= STEPS_MAX else None
        if found is None:
            raise Refused(404, "not_found", self._why_absent(steps))
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[path] = found
        return found

    def _why_absent(self, steps: list[str]) -> str:
        paths = ("/".join(steps[:count]) for count in range(1, min(len(steps), STEPS_MAX) + 1))
        known = (self._absent[path] for path in paths if path in self._absent)
        return next(known, "there is nothing here; / says what there is")


def _walk(place: _Place, steps: list[str], index: int, names: tuple[str, ...]) -> tuple[_Place, tuple[str, ...]] | None:
    """Where the steps from `index` on lead. Words go before names; a name with slashes takes several steps."""
    if index == len(steps):
        return (place, names) if place.by_method else None
    word = place.words.get(steps[index])
    if word is not None and (found := _walk(word, steps, index + 1, names)):
        return found
    if place.named is None:
        return None
    for end in range(index + 1, len(steps) + 1):
        name = "/".join(steps[index:end])
        if name and (found := _walk(place.named, steps, end, (*names, plain_text(name, "path", InvalidName)))):
            return found
    return None


# A full disk, an outage and a lost store are told once, by those who notice them: not again with every request.
_told_once = (StoreFull, StoreReplaced, *OUTAGES)


def _refusal(request: Request, error: HeadwaterError) -> Response:
    response = error_response(error, request.id)
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, _told_once):
        # That another has the store is no failure of this server: whoever asks again is answered.
        level = logging.WARNING if isinstance(error, StoreBusy) else logging.ERROR
        log.log(level, "request %s: %s %s: %s", request.id, request.method, request.path, error)
    return response


def _values(endpoint: _Endpoint, request: Request, warnings: list[str]) -> list[object]:
    """The body and the query as the route wants them, and what is odd about them."""
    values: list[object] = []
    if endpoint.decoder is not None:
        _check_content(request)
        values.append(_blamed_body(endpoint, request.body, warnings))
    found = parse_query(request.query) if request.query else {}
    if not found.keys() <= endpoint.names:
        unknown = ", ".join(sorted(name for name in found if name not in endpoint.names))
        told = f"no such parameter: {unknown!r:.200}; there are {', '.join(sorted(endpoint.names)) or 'none'}"
        if not endpoint.route.lenient:
            raise InvalidInput(told)
        warnings.append(told)
    if endpoint.asks is not None:
        values.append(decode_query(found, endpoint.asks))
    return values


def _blamed_body(endpoint: _Endpoint, body: bytes, warnings: list[str]) -> object:
    """The body; what is wrong with it is told as the route says."""
    try:
        return _body(endpoint, body, warnings)
    except InvalidInput as error:
        raise (endpoint.route.blame(error, body) if endpoint.route.blame else error) from None


def _body(endpoint: _Endpoint, body: bytes, warnings: list[str]) -> object:
    """The body. Where there is room for fields that nobody knows, the type without that room is tried first."""
    assert endpoint.decoder is not None
    if endpoint.strict_decoder is None:
        return decode_body(body, endpoint.decoder)
    try:
        return decode_body(body, endpoint.strict_decoder)
    except InvalidInput as odd:
        value = decode_body(body, endpoint.decoder)
        unknown = sorted(_unknown_fields(msgspec.inspect.type_info(endpoint.route.takes), _anything(body)))
        warnings.append(f"no such field: {', '.join(unknown)!r:.200}" if unknown else str(odd))
        return value


def _anything(body: bytes) -> object:
    """What is in a body; None where a field that nobody looks at, or a payload, has what Python has no value for."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _unknown_fields(kind: msgspec.inspect.Type, value: object) -> set[str]:
    """The names in a body that its type does not have."""
    if isinstance(kind, msgspec.inspect.ListType) and isinstance(value, list):
        return set().union(*(_unknown_fields(kind.item_type, item) for item in value))
    if isinstance(kind, msgspec.inspect.UnionType):
        return set().union(*(_unknown_fields(one, value) for one in kind.types))
    if not isinstance(kind, msgspec.inspect.StructType) or not isinstance(value, dict):
        return set()
    if kind.tag_field is not None and value.get(kind.tag_field) != kind.tag:
        return set()
    fields = {field.encode_name: field.type for field in kind.fields}
    found = {name for name in value if name not in fields and name != kind.tag_field}
    return found.union(*(_unknown_fields(fields[name], inner) for name, inner in value.items() if name in fields))


def _with_warnings(response: Response, warnings: list[str]) -> Response:
    """The answer with what is odd about its question. Only the asker is told: what they wrote may be a secret."""
    shown = "; ".join(warnings).encode("ascii", "backslashreplace").decode()
    return msgspec.structs.replace(response, headers=(*response.headers, (WARNING_HEADER, shown)))


def _field_names(kind: Any) -> list[str]:
    """The names of a query's parameters, as they are written."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _check_content(request: Request) -> None:
    """A body is plain JSON and says so: a foreign page cannot make a browser say that unasked."""
    if not request.body:
        return
    kind = request.headers.get("content-type", "")
    if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "unsupported_media_type", "send JSON, with the header content-type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "unsupported_media_type", "send the body as it is, without content-encoding")
