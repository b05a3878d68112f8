"""When a schedule comes round again: cron lines in a time zone, or a fixed number of seconds. Rules, no clock.

    minute hour day-of-month month day-of-week        0-59 0-23 1-31 1-12 0-7 (0 and 7 are Sunday)

`*`, lists, ranges, steps, names of months and days, and `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. As in
cron, when both days are given, either is enough; a day field that begins with `*`, with a step or without, is not
given, and then both must fit. A time that a change to summer time leaves out is skipped. The hour
that the change back repeats counts twice for lines that run all the time (`*` or a step of it as hour or minute), so
that an hourly job runs every hour; a time of day, like 02:30, comes once.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption

YEARS_AHEAD_MAX = 30
_names = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_months = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_days = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_fields = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))


class Cron(msgspec.Struct, frozen=True):
    """A parsed cron line: the values that each field allows."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    is_frequent: bool = False

    def allows_day(self, day: datetime) -> bool:
        """Whether a day is one of the line's."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


@cache
def parse_cron(line: str) -> Cron:
    """A cron line as values; an error names the field and what is wrong with it.

    >>> sorted(parse_cron("*/20 * * * *").minutes)
    [0, 20, 40]
    """
    parts = _names.get(line.strip().lower(), line).split()
    if len(parts) != len(_fields):
        raise InvalidOption(f"a cron line has 5 fields (minute hour day month weekday); got {line!r:.80}")
    values = [_field(text, *field) for text, field in zip(parts, _fields, strict=True)]
    weekdays = frozenset(day % 7 for day in values[4])
    minutes, hours, days, months = values[:4]
    days_open = (parts[2].startswith("*"), parts[4].startswith("*"))
    is_frequent = parts[0].startswith("*") or parts[1].startswith("*")
    return Cron(minutes, hours, days, months, weekdays, *days_open, is_frequent)


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        if step and (not step.isdecimal() or int(step) == 0):
            raise InvalidOption(f"cron {name}: a step is a number above 0; got {part!r:.40}")
        first, last = _span(span, name, low, high, stepped=bool(step))
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _span(span: str, name: str, low: int, high: int, *, stepped: bool) -> tuple[int, int]:
    if span == "*":
        return low, high
    begin, dash, end = span.partition("-")
    first = _value(begin, name, low, high)
    last = _value(end, name, low, high) if dash else high if stepped else first
    if last < first:
        raise InvalidOption(f"cron {name}: a range goes up; got {span!r:.40}")
    return first, last


def _value(text: str, name: str, low: int, high: int) -> int:
    words = _months if name == "month" else _days if name == "day of week" else ()
    if text in words:
        return words.index(text) + (1 if name == "month" else 0)
    if not text.isdecimal() or not low <= int(text) <= high:
        raise InvalidOption(f"cron {name}: {low} to {high} is expected; got {text!r:.40}")
    return int(text)


@cache
def find_timezone(name: str) -> tzinfo:
    """The time zone of this name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidOption(f"no such time zone: {name!r:.80}; one like Europe/Berlin or UTC is expected") from None


def next_cron(line: str, timezone: str, after: Timestamp) -> Timestamp:
    """The first time of a cron line after `after`."""
    cron, zone = parse_cron(line), find_timezone(timezone)
    day = datetime.fromtimestamp(after / SECOND, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for _ in range(YEARS_AHEAD_MAX * 366):
        if cron.allows_day(day):
            found = _time_on(cron, day, zone, after)
            if found is not None:
                return found
        day += timedelta(days=1)
    raise InvalidOption(f"cron line {line!r:.80} names no day that ever comes")


def _time_on(cron: Cron, day: datetime, zone: tzinfo, after: Timestamp) -> Timestamp | None:
    """The first time of a day after `after`. Only on a day on which the clocks change need all of them be looked at."""
    changes = day.replace(tzinfo=zone).utcoffset() != (day + timedelta(days=1)).replace(tzinfo=zone).utcoffset()
    found: Timestamp | None = None
    for hour in sorted(cron.hours):
        for minute in sorted(cron.minutes):
            for fold in (0, 1) if changes and cron.is_frequent else (0,):
                moment = _moment(day.replace(hour=hour, minute=minute, fold=fold), zone)
                if moment is not None and moment > after and (found is None or moment < found):
                    found = moment
            if found is not None and not changes:
                return found
    return found


def _moment(wall: datetime, zone: tzinfo) -> Timestamp | None:
    """When a clock on the wall shows this; None when it never does, because the clocks were put forward over it."""
    moment = Timestamp(round(wall.replace(tzinfo=zone).timestamp()) * SECOND)
    shown = datetime.fromtimestamp(moment / SECOND, zone).replace(tzinfo=None, fold=0)
    return moment if shown == wall.replace(fold=0) else None


def next_every(seconds: float, start: Timestamp, after: Timestamp) -> Timestamp:
    """The first time after `after` that is a whole number of periods from `start`: missed ones do not pile up."""
    period = max(int(seconds * SECOND), 1)
    return Timestamp(start + ((after - start) // period + 1) * period)
