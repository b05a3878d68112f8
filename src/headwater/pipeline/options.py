"""What people write in `.option(…)`, checked at once and passed on as values.

Names are those of Spark's Kafka source where it has them. Spark hands all options over in lower case, so an error
names them as they are documented. They are checked on the driver, so a path is one from there.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from headwater.client.access import Access
from headwater.client.address import check_token
from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, QueueMissing
from headwater.filters.spark import parse_for_payloads
from headwater.model.names import DATABASE_DEFAULT, Lsn, check_name
from headwater.pipeline.ddl import complaint_of
from headwater.stores.open import has_password, is_server, shown

QUEUES_NAMED_MAX = 20
QUEUES_BY_ONE = "a read names its queues by one of the options queue, queues or pattern"

# What Spark itself puts among the options: of a sink, and of a table of its catalog, whose own it also repeats.
_OF_SPARK = {"checkpointlocation", "queryname"}
_OF_CATALOG = {"provider", "owner", "location", "external", "is_managed_location", "comment", "collation"}
_REPEATED = "option."
_KEPT = "headwater?"

# What the same is called by those who come from Kafka's source, or from a table format.
_ELSEWHERE = {
    "assign": "partitions",
    "kafka.bootstrap.servers": "store",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "subscribe": "queues",
    "subscribepattern": "pattern",
    "topic": "queue",
    "startingtimestamp": "startingOffsets",
    "startingversion": "startingOffsets",
    "endingtimestamp": "endingOffsets",
    "timestampasof": "endingOffsets",
    "versionasof": "endingOffsets",
    "maxfilespertrigger": "maxOffsetsPerTrigger",
    "maxbytespertrigger": "maxOffsetsPerTrigger",
}

PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"

# Shapes of rows. `reading.py` asks for those in UTC where that is the session's zone: times without a zone are in it.
RECORDS, SEGMENTS, TYPED = "records", "segments", "typed"
SEGMENTS_UTC, TYPED_UTC = "segments_utc", "typed_utc"

# In place of a snapshot: one is taken and handed out, with the columns.
TAKE = "take"

# In place of an offset, as Kafka's source has it.
OF_EARLIEST, OF_LATEST = -2, -1


class Place(msgspec.Struct, frozen=True):
    """A place in the log as a user names it: an end of what is kept, an LSN, a time, or offsets by partition."""

    name: str = ""
    lsn: Lsn | None = None
    time: Timestamp | None = None
    offsets: dict[str, dict[str, int]] | None = None


EARLIEST, LATEST = Place("earliest"), Place("latest")


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, from where to where, in which shape."""

    store: str
    database: str = DATABASE_DEFAULT
    queues: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[str] = frozenset()
    filter: str = ""
    starting: Place = EARLIEST
    ending: Place = LATEST
    offsets_per_trigger_max: int | None = None
    event_time: str = ""
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    group: str = ""
    schema: str = ""
    mode: str = FAILFAST
    corrupt_column: str = "_corrupt_record"
    value_type: str = "string"
    shape: str = "records"
    snapshot: str = ""
    access: Access = Access()

    @property
    def is_typed(self) -> bool:
        """Whether what does not fit the schema comes as a text, for Spark to type."""
        return self.shape in (TYPED, TYPED_UTC)

    @property
    def is_segments(self) -> bool:
        """Whether a row is a segment."""
        return self.shape in (SEGMENTS, SEGMENTS_UTC)

    @property
    def is_utc(self) -> bool:
        """Whether times without a zone are known to be those of UTC."""
        return self.shape in (SEGMENTS_UTC, TYPED_UTC)

    def wants(self, partition: str) -> bool:
        """Whether a partition is read at all."""
        return not self.partitions or partition in self.partitions

    def choose(self, known: list[str], read_before: Collection[str] = ()) -> tuple[str, ...]:
        """The queues that are meant, among those that exist; one that is named must be there, or was read before."""
        if self.pattern:
            return tuple(name for name in known if fnmatchcase(name, self.pattern))
        for name in self.queues:
            if name not in known and name not in read_before:
                raise QueueMissing(f"there is no queue {name!r} in {shown(self.store)}; there are {_listed(known)}")
        return tuple(name for name in self.queues if name in known)


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to push."""

    store: str
    database: str = DATABASE_DEFAULT
    queue: str = ""
    partition: str = ""
    idempotency_key: str = ""
    fail_on_data_loss: bool = True
    allow_same_queue: bool = False
    checkpoint: str = ""
    access: Access = Access()


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read, or an error that names what there is."""
    named = {"queue", "queues", "pattern"} & given.keys()
    if len(named) > 1:
        raise InvalidOption(QUEUES_BY_ONE)
    options = ReadOptions(**_parse(given, _READ))
    if not named:
        raise InvalidOption(QUEUES_BY_ONE)
    if options.ending == EARLIEST:
        raise InvalidOption("option endingOffsets must be latest, an LSN or a time: nothing ends at earliest")
    if said := begins_behind_its_end(options.starting, options.ending):
        raise InvalidOption(f"{said}; startingOffsets lies before endingOffsets")
    if options.is_typed and not options.schema:
        raise InvalidOption(f"shape={options.shape} needs a schema")
    if options.schema and options.value_type != "string":
        raise InvalidOption("schema gives value its type; leave valueType out")
    return options


def begins_behind_its_end(starting: Place, ending: Place) -> str:
    """What is wrong with a stretch that begins behind its end; empty when nothing is, or only the log can tell."""
    if starting.lsn is not None and ending.lsn is not None and starting.lsn > ending.lsn:
        return f"the read begins at LSN {starting.lsn}, behind its end, LSN {ending.lsn}"
    if starting.time is not None and ending.time is not None and starting.time > ending.time:
        return "the time at which the read begins lies behind its end"
    ends = ending.offsets or {}
    for queue, offsets in (starting.offsets or {}).items():
        for partition, first in offsets.items():
            end = ends.get(queue, {}).get(partition, OF_LATEST)
            if first > end >= 0:
                return f"the read of {queue}/{partition} begins at {first}, behind its end {end}"
    return ""


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write, or an error that names what there is. A table of the catalog has those of reads, too."""
    if _is_table(given):
        readable = {name.lower() for name in _READ} - {name.lower() for name in _WRITE}
        given = {name: text for name, text in given.items() if name not in readable}
    return WriteOptions(**_parse(given, _WRITE), checkpoint=given.get("checkpointlocation", ""))


def keep_options(given: Mapping[str, str]) -> str:
    """The options of a table of the catalog as a text; empty when it is none.

    A token is not kept, and an address with a password is refused.

    Spark keeps such options and does not hand them to a Python source again when the table is used. The columns it does
    hand over, with their comments.
    """
    if not _is_table(given):
        return ""
    if has_password(given.get("store") or given.get("path") or ""):
        raise InvalidOption(
            "the address of a table may have no password: Spark keeps it with the columns, shows it to whoever asks "
            "what the table is, and writes it into files made of it. Use PGPASSWORD or a password file"
        )
    known = {name.lower() for name in (*_READ, *_WRITE)} - {"token"}
    return _KEPT + urlencode({name: text for name, text in given.items() if name in known}, safe="/:,*")


def kept_options(comment: str) -> dict[str, str]:
    """The options in such a text, and that they are a table's; none in any other."""
    if not comment.startswith(_KEPT):
        return {}
    return {"provider": "", _REPEATED: "", **dict(parse_qsl(comment.removeprefix(_KEPT), keep_blank_values=True))}


def _is_table(given: Mapping[str, str]) -> bool:
    return "provider" in given and any(name.startswith(_REPEATED) for name in given)


def access_options(access: Access) -> dict[str, str]:
    """What was said about access, as options."""
    names = {option.field: name for name, option in _ACCESS.items()}
    return {
        name: str(value)
        for field, name in names.items()
        if (value := getattr(access, field)) != getattr(Access(), field)
    }


def anywhere(address: str) -> str:
    """The address of a store as other processes find it: executors run in folders of their own."""
    scheme = "sqlite:///" if address.startswith("sqlite:///") else ""
    if "://" in address and not scheme:
        return address
    return scheme + os.path.abspath(address.removeprefix(scheme))


def _parse(given: Mapping[str, str], known: "dict[str, _Option]") -> dict[str, Any]:
    if _is_table(given):
        given = {name: text for name, text in given.items() if name not in _OF_CATALOG and _REPEATED not in name}
    by_lower_case = {name.lower(): name for name in known}
    unknown = sorted(name for name in given if name not in by_lower_case and name not in _OF_SPARK)
    if unknown:
        raise InvalidOption(_no_such(unknown, by_lower_case))
    parsed: dict[str, Any] = {}
    for lower, text in given.items():
        if lower in by_lower_case:
            option = known[by_lower_case[lower]]
            if option.field in parsed:
                both = " and ".join(name for name in known if known[name].field == option.field)
                raise InvalidOption(f"the options {both} say the same; leave one of them out")
            parsed[option.field] = option.parse(by_lower_case[lower], text)
    if not parsed.get("store"):
        raise InvalidOption(
            "option store is missing: the path or URL of the store, as `headwater serve` takes it. A table keeps its "
            "options when its columns are left out: CREATE TABLE … USING headwater OPTIONS (store …, queue …). Spark "
            "hands none over for CREATE TABLE … AS SELECT: make the table first, then INSERT INTO … SELECT"
        )
    if is_server(parsed["store"]):
        # On a server the database is that of the token, whichever that is, unless one is named.
        parsed.setdefault("database", "")
    parsed["access"] = _access(parsed)
    return parsed


def _no_such(unknown: list[str], by_lower_case: dict[str, str]) -> str:
    """What is said of options that there are not: what was probably meant, and what there is."""
    there = {**_ELSEWHERE, **by_lower_case}
    near = {name: [there[found] for found in get_close_matches(name, there, 1)] for name in unknown}
    meant = {name: found for name, found in near.items() if found and found[0] in by_lower_case.values()}
    told = [f"{name} (did you mean {meant[name][0]}?)" if name in meant else name for name in unknown]
    return f"no such option: {', '.join(told)}; there are {', '.join(sorted(by_lower_case.values()))}"


def _access(parsed: dict[str, Any]) -> Access:
    """What was said about access, taken out of the other options."""
    access = Access(**{name: parsed.pop(name) for name in Access.__struct_fields__ if name in parsed})
    if not access.is_default() and not is_server(parsed["store"]):
        named = ", ".join(sorted(_ACCESS))
        raise InvalidOption(
            f"the options {named} are for a store at https://; {shown(parsed['store'])} asks for none of them"
        )
    if access.token and access.token_file:
        raise InvalidOption("the token comes from one of the options token and tokenFile, not from both")
    return access


class _Option(msgspec.Struct, frozen=True):
    """The field that an option fills, and how its text becomes a value."""

    field: str
    parse: Callable[[str, str], Any]


def _text(name: str, text: str) -> str:
    """A text that says something: one that is empty is a variable that nobody set."""
    if not text.strip():
        raise InvalidOption(f"option {name} is empty; leave it out, or say what it is to be")
    return text


def _schema(name: str, text: str) -> str:
    if complaint := complaint_of(_text(name, text)):
        raise InvalidOption(f"option {name} cannot be used: {complaint}")
    return text


def _filter(name: str, text: str) -> str:
    parse_for_payloads(_text(name, text))
    return text


def _store(name: str, text: str) -> str:
    return anywhere(_text(name, text))


def _token(name: str, text: str) -> str:
    return check_token(_text(name, text))


def _file(name: str, text: str) -> str:
    return os.path.abspath(_text(name, text))


def _seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text):
        raise InvalidOption(f"option {name} must be a number of seconds from 0 to 99,999; got {text!r:.80}")
    return float(text)


def _queue(name: str, text: str) -> tuple[str, ...]:
    return (check_name("queue", text),)


def _queues(name: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name("queue", part.strip()) for part in text.split(",")))


def _partition(name: str, text: str) -> frozenset[str]:
    return frozenset({check_name("partition", text)})


def _partitions(name: str, text: str) -> frozenset[str]:
    return frozenset(check_name("partition", part.strip()) for part in text.split(","))


def _one_name(name: str, text: str) -> str:
    return check_name(name, text)


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,17}", text):
        raise InvalidOption(f"option {name} must be a whole number from 1; got {text!r:.80}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"option {name} must be true or false; got {text!r:.80}")
    return text.lower() == "true"


def _one_of(*values: str, ours: tuple[str, ...] = ()) -> Callable[[str, str], str]:
    """One of some words; of which those that are `ours` are not for people."""

    def parse(name: str, text: str) -> str:
        found = [value for value in (*values, *ours) if value.lower() == text.lower()]
        if not found:
            raise InvalidOption(f"option {name} must be {' or '.join(values)}; got {text!r:.80}")
        return found[0]

    return parse


def _place(name: str, text: str) -> Place:
    if text.lower() in ("earliest", "latest"):
        return Place(text.lower())
    if text.lstrip().startswith("{"):
        return Place("offsets", offsets=_offsets(name, text))
    if re.fullmatch(r"\d{1,18}", text):
        return Place("lsn", lsn=Lsn(int(text)))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidOption(
            f"option {name} must be earliest, latest, an LSN, a time with its zone such as 2026-11-15T08:00:00Z, or "
            f'offsets by queue and partition such as {{"orders": {{"eu": 5}}}}; got {text!r:.80}'
        )
    return Place("time", time=Timestamp(int(time.timestamp() * SECOND)))


def _offsets(name: str, text: str) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, Annotated[int, msgspec.Meta(ge=OF_EARLIEST)]]])
    except msgspec.MsgspecError as error:
        raise InvalidOption(
            f'option {name} as JSON must have an offset for partitions of queues, such as {{"orders": {{"eu": 5}}}}, '
            f"where {OF_EARLIEST} stands for the first and {OF_LATEST} for the end; got {text!r:.80} ({error})"
        ) from error


_ACCESS = {
    "token": _Option("token", _token),
    "tokenFile": _Option("token_file", _file),
    "caFile": _Option("certificates_file", _file),
    "retrySeconds": _Option("retry_seconds", _seconds),
}

_READ = {
    **_ACCESS,
    "store": _Option("store", _store),
    "path": _Option("store", _store),
    "database": _Option("database", _one_name),
    "queue": _Option("queues", _queue),
    "queues": _Option("queues", _queues),
    "pattern": _Option("pattern", _text),
    "partition": _Option("partitions", _partition),
    "partitions": _Option("partitions", _partitions),
    "filter": _Option("filter", _filter),
    "startingOffsets": _Option("starting", _place),
    "endingOffsets": _Option("ending", _place),
    "maxOffsetsPerTrigger": _Option("offsets_per_trigger_max", _count),
    "eventTime": _Option("event_time", _text),
    "minPartitions": _Option("partitions_min", _count),
    "failOnDataLoss": _Option("fail_on_data_loss", _flag),
    "group": _Option("group", _one_name),
    "schema": _Option("schema", _schema),
    "mode": _Option("mode", _one_of(PERMISSIVE, FAILFAST)),
    "columnNameOfCorruptRecord": _Option("corrupt_column", _text),
    "valueType": _Option("value_type", _one_of("string", "variant")),
    "shape": _Option("shape", _one_of(RECORDS, SEGMENTS, ours=(TYPED, SEGMENTS_UTC, TYPED_UTC))),
    "snapshot": _Option("snapshot", _text),
}

_WRITE = {
    **_ACCESS,
    "store": _Option("store", _store),
    "path": _Option("store", _store),
    "database": _Option("database", _one_name),
    "queue": _Option("queue", _one_name),
    "partition": _Option("partition", _one_name),
    "idempotencyKey": _Option("idempotency_key", _text),
    "failOnDataLoss": _Option("fail_on_data_loss", _flag),
    "allowSameQueue": _Option("allow_same_queue", _flag),
}

READ_OPTION_NAMES = tuple(_READ)
WRITE_OPTION_NAMES = tuple(_WRITE)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:QUEUES_NAMED_MAX]) or "none"
    return shown if len(names) <= QUEUES_NAMED_MAX else f"{shown} and {len(names) - QUEUES_NAMED_MAX} more"
