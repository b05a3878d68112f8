"""Types of bodies without room for fields that nobody knows.

A lenient route tries such a type first: a body with a field too many costs a second look, and no other does.
"""

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec


def strict_type(kind: Any) -> Any:
    """The type whose structs refuse a field that they do not have, on every level. What it decodes is a `kind`, too."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _strict_struct(kind)
    inner = get_args(kind)
    if not inner:
        return kind
    if get_origin(kind) is Annotated:
        return Annotated[(strict_type(inner[0]), *inner[1:])]
    chosen = tuple(map(strict_type, inner))
    if chosen == inner:
        return kind
    return reduce(or_, chosen) if get_origin(kind) in (Union, UnionType) else get_origin(kind)[chosen]


@cache
def _strict_struct(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    config = kind.__struct_config__
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (field.name, strict_type(hints[field.name]), msgspec.field(**_default(field)))
        for field in msgspec.structs.fields(kind)
        if strict_type(hints[field.name]) != hints[field.name]
    ]
    if config.forbid_unknown_fields and not fields:
        return kind
    return msgspec.defstruct(
        f"Strict{kind.__name__}", fields, bases=(kind,), forbid_unknown_fields=True, frozen=config.frozen, gc=config.gc
    )


def _default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    found = {"default": field.default, "default_factory": field.default_factory}
    return {name: value for name, value in found.items() if value is not msgspec.NODEFAULT}
