"""Bounds of what callers hand in: each check returns the value, or raises and names what was expected and what came."""

from datetime import datetime
from typing import Any

from headwater.clock import SECOND, Timestamp
from headwater.config import Durability
from headwater.errors import InvalidOption
from headwater.services.messages import Outgoing

TEXT_LENGTH_MAX = 256
HEADERS_MAX = 64
HEADER_LENGTH_MAX = 4_096
SECONDS_MAX = 7 * 86_400


def check_time(value: datetime | int) -> Timestamp:
    """A time from outside; a datetime without a zone is refused: nobody can know which one was meant."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption("a time needs a time zone: datetime.now(UTC), or one with an offset")
        return Timestamp(int(value.timestamp() * SECOND))
    return Timestamp(check_number("timestamp", value))


def check_outgoing(payload: Any, about: dict[str, Any]) -> Any:
    if not about:
        return payload
    try:
        return Outgoing(payload=payload, **about)
    except TypeError as error:
        allowed = ", ".join(sorted(set(Outgoing.__struct_fields__) - {"payload", "queue", "partition"}))
        raise InvalidOption(f"push takes {allowed}; got {', '.join(sorted(about))}") from error


def check_durability(value: Durability | str | None) -> Durability | None:
    if value is None or isinstance(value, Durability):
        return value
    try:
        return Durability(value)
    except ValueError:
        raise InvalidOption(f"durability must be synced, written or memory; got {value!r}") from None


def check_text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX:
        raise InvalidOption(f"{name} must be a text of at most {TEXT_LENGTH_MAX} characters; got {value!r:.80}")
    return value


def check_number(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise InvalidOption(f"{name} must be a whole number from 0; got {value!r:.80}")
    return value


def check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= SECONDS_MAX:
        raise InvalidOption(f"{name} must be above 0 and at most {SECONDS_MAX:,}; got {value!r:.80}")


def check_headers(headers: object) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise InvalidOption(f"headers must be at most {HEADERS_MAX} names with texts; got {headers!r:.80}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or len(name) + len(value) > HEADER_LENGTH_MAX:
            raise InvalidOption(
                f"a header is a name and a text of at most {HEADER_LENGTH_MAX} characters; got {name!r:.80}"
            )
    return headers
