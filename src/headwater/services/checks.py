"""Bounds of what callers hand in: each check returns the value, or raises and names what was expected and what came."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard

from headwater.clock import Timestamp
from headwater.config import Durability
from headwater.errors import InvalidInput, InvalidName, InvalidOption
from headwater.model.names import check_name
from headwater.services.messages import Message, Outgoing, deliveries_of

TEXT_LENGTH_MAX = 256
HEADERS_MAX = 64
HEADER_LENGTH_MAX = 4_096
SECONDS_MAX = 7 * 86_400
DELAY_SECONDS_MAX = 3_650 * 86_400
LIMIT_MAX = 100_000
# The last microsecond that a datetime can show.
TIMESTAMP_MAX = 253_402_300_799_999_999
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_time(value: datetime | int) -> Timestamp:
    """A time from outside; a datetime without a zone is refused: nobody can know which one was meant."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption("a time needs a time zone: datetime.now(UTC), or one with an offset")
        return Timestamp((value - EPOCH) // timedelta(microseconds=1))
    return check_timestamp(value)


def check_timestamp(value: object) -> Timestamp:
    """Microseconds since 1970, no further than a datetime goes."""
    number = check_number("timestamp", value)
    if number > TIMESTAMP_MAX:
        raise InvalidOption(f"timestamp must be at most {TIMESTAMP_MAX} microseconds; got {number}")
    return Timestamp(number)


def check_outgoing(
    payload: object,
    *,
    transaction_id: str,
    trace_id: str,
    type: str,
    headers: dict[str, str] | None,
    timestamp: datetime | int | None,
) -> object:
    """The payload with what is said about it; an `Outgoing` says it itself."""
    if (transaction_id, trace_id, type, headers, timestamp) == ("", "", "", None, None):
        return payload
    if isinstance(payload, Outgoing):
        raise InvalidOption(
            "transaction_id, trace_id, type, headers and timestamp are given inside headwater.Outgoing or beside a "
            "plain payload, not both"
        )
    return Outgoing(
        payload=payload,
        transaction_id=transaction_id,
        trace_id=trace_id,
        type=type,
        headers=headers,
        timestamp=None if timestamp is None else check_timestamp(check_time(timestamp)),
    )


def check_durability(value: Durability | str | None) -> Durability | None:
    if value is None or isinstance(value, Durability):
        return value
    try:
        return Durability(value)
    except ValueError:
        raise InvalidOption(f"durability must be synced, written or memory; got {value!r}") from None


def is_text(value: object) -> TypeGuard[str]:
    """Whether this is a text that can be written as UTF-8, without NUL; half a surrogate pair cannot."""
    if not isinstance(value, str) or "\x00" in value:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(name: str, value: object) -> str:
    if not is_text(value) or len(value) > TEXT_LENGTH_MAX:
        raise InvalidOption(f"{name} must be a text of at most {TEXT_LENGTH_MAX} characters; got {value!r:.80}")
    return value


def check_number(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise InvalidOption(f"{name} must be a whole number from 0; got {value!r:.80}")
    return value


def check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= SECONDS_MAX:
        raise InvalidOption(f"{name} must be above 0 and at most {SECONDS_MAX:,}; got {value!r:.80}")


def check_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} must be true or false; got {value!r:.80}")
    return value


def check_delay(value: object) -> float:
    """How much later something is to come, in seconds, from a number or a timedelta; at most ten years."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise InvalidOption(f"delay must be 0 to {DELAY_SECONDS_MAX:,} seconds, or a timedelta; got {value!r:.80}")
    return float(seconds)


def check_list(name: str, value: object) -> list[Any]:
    """Any iterable of values; a text, bytes or a mapping is not meant as one."""
    if type(value) is list or type(value) is tuple:
        return list(value)
    if isinstance(value, str | bytes | bytearray | dict) or not isinstance(value, Iterable):
        raise InvalidOption(f"{name} must be a list; got {value!r:.80}")
    return list(value)


def check_ids(ids: object) -> tuple[int, ...]:
    """Numbers of dead letters, each once."""
    return tuple(dict.fromkeys(check_number("ids", number) for number in check_list("ids", ids)))


def check_limit(value: object, limit_max: int = LIMIT_MAX) -> int:
    if type(value) is not int or not 1 <= value <= limit_max:
        raise InvalidOption(f"limit must be a whole number from 1 to {limit_max:,}; got {value!r:.80}")
    return value


def check_message(value: object) -> Message:
    if not isinstance(value, Message):
        raise InvalidInput(f"a message that was popped is expected; got {value!r:.80}")
    return value


def check_messages(value: object) -> list[Message]:
    """One message, or any number of them."""
    if isinstance(value, Message):
        return [value]
    messages = check_list("messages", value)
    return messages if set(map(type, messages)) == {Message} else [check_message(message) for message in messages]


def check_messages_of(database: str, value: object) -> list[Message]:
    """The same, of one database: what is reported in another's name would change what is not there."""
    messages = check_messages(value)
    for delivery in deliveries_of(messages):
        if delivery.database != database:
            raise InvalidInput(f"a message of the database {delivery.database!r:.80} was given to {database!r:.80}")
    return messages


def check_optional_name(kind: str, value: object) -> str:
    """A name, or '' for none."""
    return "" if value == "" else check_name(kind, value)


def check_said_name(kind: str, value: object) -> str:
    """A name, or '' when none is said. One that is said and empty is a variable that nobody filled: it must not mean
    all of them."""
    if value == "":
        raise InvalidName(f"{kind} is empty; leave it out, or say which is meant")
    return "" if value is None else check_name(kind, value)


def check_headers(headers: object) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise InvalidOption(f"headers must be at most {HEADERS_MAX} names with texts; got {headers!r:.80}")
    for name, value in headers.items():
        if not is_text(name) or not is_text(value) or len(name) + len(value) > HEADER_LENGTH_MAX:
            raise InvalidOption(
                f"a header is a name and a text of at most {HEADER_LENGTH_MAX} characters; got {name!r:.80}"
            )
    return headers
