"""How rooms behave: parameters under the names that people know them by, two profiles, and types of messages.

They come from `HEADWATER_*` variables, such as `HEADWATER_MESSAGE_TTL=300`, or from `headwater.open(…, rooms={…})`.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from headwater.config import ENVIRONMENT_PREFIX, Durability, convert_settings
from headwater.errors import ConfigError, InvalidName
from headwater.model.names import check_name
from headwater.model.room import CURSOR, CURSOR_BATCH, OWN_TYPES, Coalescing


class TypeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How safe messages of one type are when their sender does not say, and what becomes of fast ones."""

    durability: Durability = Durability.WRITTEN
    coalescing: Coalescing = Coalescing.EVERY


EVERY = TypeSettings()
PASSES = TypeSettings(durability=Durability.MEMORY)
# What has another name is kept, every one of it.
TYPES: Mapping[str, TypeSettings] = {
    CURSOR: TypeSettings(durability=Durability.MEMORY, coalescing=Coalescing.LATEST),
    CURSOR_BATCH: PASSES,
    "object-create": EVERY,
    "object-update": EVERY,
    "test": EVERY,
}


class CleanupPolicy(StrEnum):
    """When a message is dropped: when its time is over, or, before that, when all servers have delivered it."""

    TTL = "ttl"
    WATERMARK = "watermark"


class RoomSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about rooms."""

    queue_poll_interval: int = 50
    """Milliseconds that a server rests between two looks; up to 50 it looks as soon as it is woken."""
    message_ttl: float = 60.0
    """Seconds that a message is kept for those who come back."""
    cursor_batch_interval: int = 200
    """Milliseconds between two batches of cursors, and of other messages that are coalesced."""
    enable_local_broadcast: bool = True
    """Hand what only passes to members on the same server at once, not by way of the log."""
    max_messages_per_poll: int = 100
    """Segments of the log that are read at once."""
    cleanup_interval: float = 30.0
    """Seconds between two rounds that drop what is older than its time to live."""
    cleanup_policy: CleanupPolicy = CleanupPolicy.TTL
    """Drop messages when their time is over (ttl), or as soon as all servers have delivered them (watermark)."""
    use_message_queue: bool = True
    """Whether messages go through the log; without it they pass from member to member within one process."""
    server_instance_id: str = ""
    """The name of this server among others; made anew with each start when it is not set."""
    types: dict[str, TypeSettings] = {}
    """By message type: durability (memory, written, synced) and coalescing (every, latest, merge)."""

    def of(self, type: str) -> TypeSettings:
        """How messages of a type are treated."""
        return self.types.get(type) or TYPES.get(type, EVERY)


PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "low-latency": {"queue_poll_interval": 20, "enable_local_broadcast": True, "cursor_batch_interval": 100},
    "high-throughput": {"queue_poll_interval": 200, "enable_local_broadcast": False, "cursor_batch_interval": 500},
}
PROFILE = "room_profile"
TYPES_VARIABLE = "room_types"
_EXAMPLE = '{"object-update": {"coalescing": "latest"}}'
_WEEK_SECONDS = 7 * 86_400
_MINUTE_MS = 60_000
# Up to where each number makes sense: a rest of a minute is none, and what is read at once has to fit into memory.
_most = {
    "queue_poll_interval": _MINUTE_MS,
    "message_ttl": _WEEK_SECONDS,
    "cursor_batch_interval": _MINUTE_MS,
    "max_messages_per_poll": 10_000,
    "cleanup_interval": _WEEK_SECONDS,
}
_own_ways = frozenset({CURSOR, *OWN_TYPES})
_scalars = tuple(name for name in RoomSettings.__struct_fields__ if name != "types")


def load_room_settings(
    given: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> RoomSettings:
    """A profile, with `HEADWATER_*` variables laid over it, and over those what is given by name."""
    source = os.environ if environment is None else environment
    wanted = dict(given or {})
    profile = wanted.pop("profile", None) or source.get(ENVIRONMENT_PREFIX + PROFILE.upper()) or "default"
    if profile not in PROFILES:
        raise ConfigError(f"{PROFILE} must be {', '.join(PROFILES)}; got {profile!r:.80}")
    found = {name: source[ENVIRONMENT_PREFIX + name.upper()] for name in _scalars if _variable(source, name)}
    if unknown := sorted(set(wanted) - set(RoomSettings.__struct_fields__)):
        names = ", ".join(("profile", *RoomSettings.__struct_fields__))
        raise ConfigError(f"no such setting of rooms: {', '.join(unknown)}; there are {names}")
    values = {**PROFILES[profile], **found, **wanted}
    settings = convert_settings({name: value for name, value in values.items() if name != "types"}, RoomSettings)
    settings = msgspec.structs.replace(settings, types=_types(_declared(wanted, source)))
    if settings.server_instance_id:
        _check_instance(settings.server_instance_id)
    for name, most in _most.items():
        if not 0 < getattr(settings, name) <= most:
            raise ConfigError(f"{name} must be above 0 and at most {most:,}; got {getattr(settings, name)!r:.80}")
    return settings


def _variable(source: Mapping[str, str], name: str) -> str:
    return source.get(ENVIRONMENT_PREFIX + name.upper(), "")


def _check_instance(name: str) -> None:
    try:
        check_name("server_instance_id: a server's", name)
    except InvalidName as error:
        raise ConfigError(str(error)) from None


def _declared(wanted: Mapping[str, Any], source: Mapping[str, str]) -> object:
    """Types of messages by name, as they were given, or as JSON in a variable."""
    if "types" in wanted:
        return wanted["types"]
    text = _variable(source, TYPES_VARIABLE)
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError as error:
        variable = ENVIRONMENT_PREFIX + TYPES_VARIABLE.upper()
        raise ConfigError(f"{variable} must be JSON such as {_EXAMPLE}: {error}") from None


def _types(given: object) -> dict[str, TypeSettings]:
    try:
        types = msgspec.convert(given, dict[str, TypeSettings])
    except msgspec.ValidationError as error:
        raise ConfigError(f"types of rooms map names to {{durability, coalescing}}: {error}") from None
    for name in types:
        _check_declared(name)
    return types


def _check_declared(name: str) -> None:
    """Raises when a type cannot be declared: nobody can send such messages, or they go their own way."""
    if name in _own_ways:
        raise ConfigError(f"types of rooms: {name} goes the way it goes, whatever is declared; leave it out")
    try:
        check_name("message type", name)
    except InvalidName as error:
        raise ConfigError(f"types of rooms: no message can be of this one: {error}") from None
