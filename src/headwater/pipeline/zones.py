"""The zone of times that are written without one: the session's, as for Spark's own readers."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext

from headwater.errors import InvalidOption

SETTING = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?([0-5]\d)(?::?([0-5]\d))?)?")
_UTC = ("UTC", "Z", "Etc/UTC", "GMT", "UT")


def session_zone() -> tzinfo | None:
    """The zone of the session whose task this is; None is that of the machine, which Spark takes when none is set."""
    context = TaskContext.get()
    name = context.getLocalProperty(SETTING) if context is not None else None
    return zone_of(name) if name else None


def zone_of(name: str) -> tzinfo:
    """A zone by the name that Spark knows it by: `UTC`, `Europe/Berlin`, `+01:00`."""
    if is_utc(name):
        return UTC
    if found := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidOption(
            f"times without a zone cannot be read: this machine knows no zone {name!r}, which {SETTING} names; "
            "set it to a name such as Europe/Berlin or an offset such as +01:00"
        ) from error


def is_utc(name: str) -> bool:
    """Whether a name of Spark's stands for UTC."""
    return name in _UTC or bool(re.fullmatch(r"(UTC|GMT|UT)?[+-]0?0(:?00)?", name))


def in_utc(time: datetime, zone: tzinfo | None) -> datetime:
    """A time in UTC. Where clocks are set, one that comes twice is the first, and one that never comes is later by the
    step: so Java has it, and Python."""
    if time.tzinfo is None and zone is not None:
        time = time.replace(tzinfo=zone)
    return time.astimezone(UTC)
