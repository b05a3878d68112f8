"""Operations, questions and answers as our own wire has them: forms that are made from the types themselves, so that
what an operation gains, the wire has gained too.

    client   operation ── to_wire ──► JSON ──► form ── from_wire ──► operation   server

A form has the fields of its type under the same names, but for those that a caller may not choose: the database comes
from who asks, and how a queue is made or who else waits is for the server to know. Its bounds are those of `_kinds`
and `_own_kinds`; what it does not know it refuses. Times are microseconds since 1970.
"""

import re
from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType

from headwater.log.flow_operations import Load
from headwater.log.group_operations import ReleaseLeases
from headwater.log.job_operations import Enqueue, NewJob, RegisterTypes
from headwater.log.operations import Ack, Operation, Pop, Purge, Push, Reach, Requeue, Seek, result_type
from headwater.model.cursor import Outcome
from headwater.model.job_policy import JobPolicy
from headwater.model.names import PartitionId
from headwater.model.record import Record
from headwater.model.spreading import PRIORITY_MAX
from headwater.services.job_options import OLDER_NAMES, with_options
from headwater.stores.job_questions import JobFilter, ListJobMinutes, ListJobs
from headwater.stores.questions import ListDeadLetters, Part, Question, answer_type

Text = Annotated[str, Meta(max_length=256)]
ErrorText = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Number = Annotated[int, Meta(ge=0, lt=2**62)]
Token = Annotated[int, Meta(ge=1, lt=2**62)]
Numbers = Annotated[list[Number], Meta(max_length=100_000)]
UploadName = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Positions = Annotated[list[Number], Meta(min_length=1, max_length=10_000)]


class SentRecord(Record, frozen=True, forbid_unknown_fields=True):
    """A record as a caller sends it. What is kept may have been written by a newer version; this may not."""


class SentPolicy(JobPolicy, frozen=True, forbid_unknown_fields=True):
    """How a function is to be run, as a caller says it."""


Records = Annotated[list[SentRecord], Meta(min_length=1)]

NULL = Raw(b"null")
# What a caller may not choose.
SERVER_SAYS = frozenset({"database", "lanes", "sharers", "part_of", "patterns", "permit", "claims"})

# What fields are wherever they stand, with their bounds; those that are not here are as their type has them.
_kinds: dict[str, object] = {
    "key": Text,
    "limit": Count,
    "partition_id": Annotated[PartitionId, Meta(ge=0, lt=2**62)],
    "token": Token,
    "offsets": Numbers,
    "timestamp": Number | None,
    "since": Number | None,
    "before": Number | None,
    "lsn": Number | None,
    "offset": Number | None,
    "after": Number,
    "number": Number,
    "holder": Text,
    "transaction_id": Text,
    "event": Text,
    "names": Annotated[list[str], Meta(max_length=100)],
    "subscribe": Literal["all", "new"],
    "upload": UploadName,
}
# What they are in one type alone.
_own_kinds: dict[tuple[type[Struct], str], object] = {
    (Push, "records"): Records,
    (Push, "delay_seconds"): Annotated[float, Meta(ge=0)],
    (Push, "priority"): Annotated[int, Meta(ge=0, le=PRIORITY_MAX)],
    (Ack, "outcomes"): dict[int, Outcome] | None,
    (Ack, "errors"): dict[int, ErrorText] | None,
    (Seek, "to"): Literal["beginning", "end"],
    (ReleaseLeases, "token"): Token | None,
    (ListJobMinutes, "since"): Number,
    (Requeue, "ids"): Numbers,
    (Purge, "ids"): Numbers,
    (Part, "after"): tuple[str, str],
    (Part, "limit"): Annotated[int, Meta(ge=1, le=10_000)],
    (Reach, "name"): Annotated[str, Meta(pattern="^spark/", max_length=512)],
    (Reach, "note"): Annotated[str, Meta(max_length=1_024)],
    (Load, "partition"): Annotated[str, Meta(min_length=1)],
    (Load, "source"): Annotated[str, Meta(min_length=1, max_length=512)],
    (Load, "covers"): Annotated[list[tuple[Number, Number]], Meta(max_length=10_000)],
    (Load, "positions"): Positions,
    (Load, "records"): Annotated[list[SentRecord], Meta(min_length=1, max_length=10_000)],
    (RegisterTypes, "types"): dict[str, SentPolicy],
    (Enqueue, "jobs"): Annotated[list[NewJob], Meta(min_length=1)],
}
# What is taken where nothing is said, otherwise than by the type.
_own_defaults: dict[tuple[type[Struct], str], object] = {
    (Push, "partition"): "",
    (Pop, "partitions"): 0,
    (ListDeadLetters, "limit"): 100,
    (ListJobMinutes, "since"): 0,
    (ListJobs, "chosen"): JobFilter(),
}
# Where what is taken is no value that can be said.
_unsayable = {(Part, "limit")}
# Parts of requests, in which a name that nobody knows is refused, too.
_strict = {NewJob, Part, JobFilter}
_older_kinds = {"max_retries": int, **dict.fromkeys(OLDER_NAMES.keys() - {"max_retries"}, float)}

_forms: dict[tuple[type[Struct], str], type[Struct]] = {}
_originals: dict[type, type[Struct]] = {}
_plans: dict[type, "_Form | None"] = {}


# ── where they go ──


def operation_path(kind: type[Operation]) -> str:
    """Where an operation is handed in: `/v1/operations/delete-queue`."""
    return f"/v1/operations/{_words(kind)}"


def question_path(kind: type[Question[Any]]) -> str:
    """Where a question is asked: `/v1/questions/list-leases`."""
    return f"/v1/questions/{_words(kind)}"


def _words(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def result_kind(kind: type[Operation]) -> Any:
    """What comes back over the wire for an operation."""
    return wire_kind(result_type(kind))


def answer_kind(kind: type[Question[Any]]) -> Any:
    """What comes back over the wire for a question."""
    return wire_kind(answer_type(kind))


# ── forms ──


def form(kind: type[Struct], *without: str, name: str = "", tag: str = "") -> type[Struct]:
    """The form of a type: a struct that reads what a caller sends, `without` fields that are said elsewhere.

    With a `tag` it is one of several, told apart by `kind`. Each has a name of its own.
    """
    place = (kind, name)
    if place not in _forms:
        _forms[place] = _make_form(kind, without, name or kind.__name__, tag)
    return _forms[place]


def _make_form(kind: type[Struct], without: Sequence[str], name: str, tag: str) -> type[Struct]:
    left_out = SERVER_SAYS.union(without)
    fields: list[Any] = [_field(kind, field) for field in msgspec.structs.fields(kind) if field.name not in left_out]
    if kind is NewJob:
        fields += [(older, older_kind | UnsetType, UNSET) for older, older_kind in _older_kinds.items()]
    made = msgspec.defstruct(
        name,
        fields,
        namespace={"__doc__": kind.__doc__},
        module="headwater.wire",
        frozen=True,
        kw_only=True,
        omit_defaults=kind.__struct_config__.omit_defaults,
        forbid_unknown_fields=_is_asked(kind),
        tag=tag or None,
        tag_field="kind" if tag else None,
    )
    _originals[made] = kind
    return made


def _is_asked(kind: type[Struct]) -> bool:
    return kind in _strict or issubclass(kind, Operation | Question)


def _field(kind: type[Struct], field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    place = (kind, field.name)
    read_as = _own_kinds.get(place, _kinds.get(field.name, field.type) if _is_asked(kind) else field.type)
    default = _own_defaults.get(place, field.default)
    if isinstance(default, Raw):
        # A schema cannot show such a default.
        return field.name, Raw | UnsetType, UNSET
    if field.default_factory is not NODEFAULT:
        return field.name, wire_kind(read_as), msgspec.field(default_factory=field.default_factory)
    if default is NODEFAULT:
        return field.name, wire_kind(read_as)
    if isinstance(default, Struct) or place in _unsayable:
        # Not shown in the schema: nobody could send it.
        return field.name, wire_kind(read_as), msgspec.field(default_factory=lambda: default)
    return field.name, wire_kind(read_as), msgspec.field(default=default)


def wire_kind(kind: Any) -> Any:
    """A type as it can be read: with forms in the place of structs that cannot, or that take too much."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return form(kind) if _needs_form(kind) else kind
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[wire_kind(arguments[0]), *arguments[1:]]
    if origin in (Union, UnionType):
        # What is either raw or null could not be read; null is raw, too.
        return Raw if Raw in arguments else reduce(or_, map(wire_kind, arguments))
    if origin is None or origin is Literal:
        return kind
    return origin[tuple(map(wire_kind, arguments))]


@cache
def _needs_form(kind: type[Struct], within: frozenset[type[Struct]] = frozenset()) -> bool:
    """Whether a struct is read as something else than itself. One that has others of its kind in it is asked once."""
    if kind in _strict or kind in within:
        return kind in _strict
    inside = within | {kind}
    return any(
        isinstance(field.default, Raw) or _reads_otherwise(field.type, inside) for field in msgspec.structs.fields(kind)
    )


def _reads_otherwise(kind: object, within: frozenset[type[Struct]] = frozenset()) -> bool:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _needs_form(kind, within)
    arguments = get_args(kind)
    if Raw in arguments and get_origin(kind) in (Union, UnionType):
        return True
    return any(_reads_otherwise(argument, within) for argument in arguments if get_origin(kind) is not Literal)


# ── from values to what is sent, and back ──


def to_wire(value: Struct) -> dict[str, object]:
    """An operation or a question as it is sent: what differs from what would be taken anyway."""
    found = {}
    for name, default, make_default in _sent(type(value)):
        given = getattr(value, name, UNSET)
        if given is not UNSET and given != (default if make_default is NODEFAULT else make_default()):
            found[name] = to_wire(given) if isinstance(given, Part) else given
    return found


@cache
def _sent(kind: type[Struct]) -> tuple[tuple[str, object, Any], ...]:
    return tuple((field.name, field.default, field.default_factory) for field in msgspec.structs.fields(form(kind)))


def from_wire(value: object, **says: object) -> Any:
    """What was read, as the values that it stands for; `says` is what the server says of it."""
    if isinstance(value, list):
        return [from_wire(one) for one in value]
    if isinstance(value, dict):
        return {name: from_wire(one) for name, one in value.items()}
    kind = type(value)
    made = _plans[kind] if kind in _plans else _plans.setdefault(kind, _form_of(kind))
    if made is None:
        return value
    original, names, nested = made
    fields = {name: read for name in names if (read := getattr(value, name)) is not UNSET}
    if original is NewJob:
        # Here, and nowhere else, older names become the newer ones.
        options = {name: read for name, read in fields.items() if read != getattr(_plain, name, None)}
        return with_options(None, options)
    for name in nested:
        fields[name] = _made(fields[name])
    fields.update(says)
    return original(**fields)


class _Form(NamedTuple):
    """What a form was made of, its fields, and those whose values are read as something else than they are."""

    original: type[Struct]
    names: tuple[str, ...]
    nested: tuple[str, ...]


def _form_of(kind: type) -> _Form | None:
    """The form that a type is, or was made from by adding to it."""
    for made in kind.__mro__:
        if made in _originals:
            original, names = _originals[made], tuple(one.name for one in msgspec.structs.fields(made))
            fields = msgspec.structs.fields(original)
            nested = tuple(one.name for one in fields if one.name in names and _reads_otherwise(one.type))
            return _Form(original, names, nested)
    return None


def answer_of(value: object) -> Any:
    """What a server answered, as the values that it stands for. Most stand for themselves; a list is of one kind."""
    first = value[0] if isinstance(value, list) and value else value
    return from_wire(value) if type(first) in _originals else value


def _made(value: object) -> object:
    if isinstance(value, Raw):
        return None if value == NULL else value
    return from_wire(value)


_plain = NewJob()
