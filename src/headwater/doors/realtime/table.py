"""Every type of message that clients of the realtime door send, by its name. A subject joins with one line."""

from collections.abc import Mapping

import msgspec

from headwater.doors.realtime import documents, replica_streams, rooms
from headwater.doors.realtime.envelope import MessageId
from headwater.doors.realtime.session import MessageHandler, RealtimeSession


class Nothing(msgspec.Struct, frozen=True):
    """A payload that says nothing."""


def take_heartbeat(session: RealtimeSession, id: MessageId, payload: Nothing) -> None:
    """The client is there. That it spoke is all there is to it."""


HANDLERS: Mapping[str, MessageHandler] = {
    "heartbeat": MessageHandler(Nothing, take_heartbeat),
    **rooms.HANDLERS,
    **documents.HANDLERS,
    **replica_streams.HANDLERS,
}
