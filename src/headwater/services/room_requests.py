"""Messages to rooms on our own wire. A client says what, the server says who: a message has no place for a sender."""

from typing import Any

from headwater.errors import InvalidOption
from headwater.log.room_operations import RoomPush
from headwater.model.names import check_name
from headwater.model.record import check_ready_json
from headwater.model.room import CURSOR, KEPT, KEY, OWN_TYPES, PASSING, SENDER, queue_of, room_of, room_record
from headwater.services.checks import check_seconds, check_text
from headwater.services.requests import RoomSend


def check_type(type: str) -> str:
    """Raises when nobody may send messages of this type."""
    if check_name("message type", type) in OWN_TYPES:
        raise InvalidOption(f"messages of type {type} are made by the server; send another type")
    return type


def check_kept_type(type: str) -> str:
    """Raises when nobody may send messages of this type where they are kept, or passed on as they are."""
    return check_no_cursor(check_type(type))


def check_no_cursor(type: str) -> str:
    """Raises for the one type that is gathered, and never kept."""
    if type == CURSOR:
        raise InvalidOption(
            "cursors are passed on in batches and never kept: send them over a WebSocket, or with room.send of a"
            " program that has opened the store, and not in a transaction; send another type here"
        )
    return type


def as_push(send: RoomSend, bytes_max: int, **says: Any) -> RoomPush:
    """What is said, as the operation of who says it; `says` is what the server says of it."""
    check_ready_json(send.data, bytes_max)
    if send.ttl_seconds is not None:
        check_seconds("ttl_seconds", send.ttl_seconds)
    sender = says.pop("sender")
    record = room_record(check_kept_type(send.type), send.data, sender, key=check_text("key", send.message_key))
    return RoomPush(
        queue=queue_of(send.room),
        partition=PASSING if send.passes else KEPT,
        records=(record,),
        ttl_seconds=send.ttl_seconds,
        **says,
    )


def as_send(push: RoomPush) -> dict[str, Any]:
    """The operation as it is sent to a server."""
    (record,) = push.records
    headers = record.headers or {}
    if headers.get(SENDER):
        raise InvalidOption("over a server the sender of a message is who the server knows it to be; leave it out")
    return {
        "room": room_of(push.queue),
        "type": record.type,
        "data": record.data,
        "message_key": headers.get(KEY, ""),
        "ttl_seconds": push.ttl_seconds,
        "passes": push.partition == PASSING,
    }
