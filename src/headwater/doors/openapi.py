"""The OpenAPI document of a server: made from its routes, so that it cannot say anything else than they do."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.wire import Problem, Request, Response, json_response

OPENAPI = "3.1.0"
PATH = "/openapi.json"
DESCRIPTION = """\
One durable log in the database you already have, and every way of drinking from it.

Routes under `/v1` carry the operations of the log as they are; those under `/api/v1` and `/streams/v1` are those of
queen-mq. Every error is a problem (RFC 9457) with a stable `code`.
"""
GROUPS = {"/v1/": "headwater", "/api/v1/": "queen-mq", "/streams/": "queen-mq streams", "/realtime/": "realtime"}
NAME_PATTERN = "^[A-Za-z0-9._:/-]{1,256}$"
NAMES = {"queue", "group", "name"}

_step = re.compile(r"\{(\w+)\}")

Document = dict[str, Any]


def with_openapi(routes: Sequence[Route]) -> tuple[Route, ...]:
    """The routes, and one more that serves the document of them all."""
    served: list[Route] = []
    made: dict[str, Response] = {}

    async def serve(site: Site, request: Request) -> Response:
        """The document. It is always the same, and large: made once, when somebody asks for it."""
        if site.version not in made:
            made[site.version] = json_response(make_document(served, site.version))
        return made[site.version]

    own = Route(method="GET", path=PATH, handler=serve, summary="This document", gives=dict[str, Any])
    served.extend((*routes, own))
    return tuple(served)


def make_document(routes: Sequence[Route], version: str) -> Document:
    """The document of some routes."""
    references = _References(routes)
    paths: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = describe(route, references)
    return {
        "openapi": OPENAPI,
        "info": {"title": "Headwater", "version": version, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": references.components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token or a JWT, where the server asks for one.",
                }
            },
        },
    }


class _References:
    """The schemas of all types that routes name: by reference where they are used, in full in one place."""

    def __init__(self, routes: Sequence[Route]) -> None:
        kinds = [Problem, *_kinds(routes)]
        schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
        # As JSON has it: defaults of fields may be tuples.
        self.components: Document = msgspec.json.decode(msgspec.json.encode(components))
        self._schemas = {_identity(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}

    def schema(self, kind: object) -> Document:
        """The schema of a type, where it is used."""
        return self._schemas[_identity(kind)]

    def fields(self, kind: object) -> Document:
        """The schema of a struct, in full."""
        name = self.schema(kind)["$ref"].rpartition("/")[2]
        found: Document = self.components[name]
        return found


def _kinds(routes: Sequence[Route]) -> Iterator[object]:
    seen: set[str] = set()
    for route in routes:
        for kind in (route.takes, route.asks, route.gives):
            if kind is not None and _identity(kind) not in seen:
                seen.add(_identity(kind))
                yield kind


def _identity(kind: object) -> str:
    """A name for a type; two of one name may come from different modules."""
    return f"{getattr(kind, '__module__', '')}.{kind!r}"


# ── one route ──


def describe(route: Route, references: _References) -> Document:
    """A route as an operation of the document."""
    operation: Document = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [next((tag for start, tag in GROUPS.items() if route.path.startswith(start)), "server")],
        "responses": _responses(route, references),
    }
    if parameters := [*_path_parameters(route), *_query_parameters(route, references)]:
        operation["parameters"] = parameters
    if route.takes is not None:
        content = {"application/json": {"schema": references.schema(route.takes)}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.scope is not None:
        scopes = " or ".join(f"`{scope.value}`" for scope in (route.scope, *route.or_scopes))
        if route.and_scope is not None:
            scopes += f" and the scope `{route.and_scope.value}`"
        operation["description"] = f"Needs the scope {scopes} where the server asks who it is."
        operation["security"] = [{"token": []}, {}]
    return operation


def operation_id(route: Route) -> str:
    """A name for programs that are made from the document: `post_v1_push`."""
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *words]).replace("-", "_")


def _path_parameters(route: Route) -> Iterator[Document]:
    for name in _step.findall(route.path):
        schema = {"type": "string", "pattern": NAME_PATTERN} if name in NAMES else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route, references: _References) -> Iterator[Document]:
    if route.asks is None:
        return
    fields = references.fields(route.asks)
    for name, schema in fields["properties"].items():
        yield {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": schema}


def _responses(route: Route, references: _References) -> Document:
    content = {
        content_type: {"schema": _answer_schema(route, content_type, references)}
        for content_type in route.content_types
    }
    good: Document = {"description": route.summary, "content": content}
    problem = {"application/problem+json": {"schema": references.schema(Problem)}}
    responses: Document = {str(route.status): good}
    if route.may_be_empty:
        responses["204"] = {"description": "There is nothing"}
    responses["default"] = {"description": "What is wrong", "content": problem}
    return responses


def _answer_schema(route: Route, content_type: str, references: _References) -> Document:
    """What a good answer is: by its type, text, or any JSON where the route does not say."""
    if route.gives is not None:
        return references.schema(route.gives)
    return {} if content_type == "application/json" else {"type": "string"}
