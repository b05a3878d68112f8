"""What goes over the wire, both ways: `{id, type, payload}`. An answer has the id of what it answers."""

from typing import Any, TypeVar

import msgspec

from headwater.doors.sessions import Frame
from headwater.doors.wire import public_detail
from headwater.errors import HeadwaterError, InvalidInput, Unauthenticated
from headwater.model.json_values import why_unread

Value = TypeVar("Value")
MessageId = str | int

NO_PLACE = ""
_nothing = msgspec.Raw(b"{}")


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A message of a client. Its payload is decoded when it is known what it should be."""

    type: str
    id: MessageId = ""
    payload: msgspec.Raw = _nothing


class _Told(msgspec.Struct, frozen=True, gc=False):
    type: str
    payload: Any


class _Answer(msgspec.Struct, frozen=True, gc=False):
    id: MessageId
    type: str
    payload: Any


class Trouble(msgspec.Struct, frozen=True):
    """The payload of `error`: the code is stable, the message is for people."""

    code: str
    message: str


_envelopes = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder()


def decode_envelope(text: str) -> Envelope:
    """A client's message; raises when it is none."""
    try:
        return _envelopes.decode(text)
    except RecursionError:
        raise InvalidInput("the message is nested too deep") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        why = why_unread(text.encode("utf-8", "replace"), error)
        raise InvalidInput(f"a message is {{id, type, payload}} as JSON: {why}") from None


def decode_payload(envelope: Envelope, decoder: "msgspec.json.Decoder[Value]") -> Value:
    """The payload as its type wants it; raises and says where it is not that."""
    payload = envelope.payload
    try:
        return decoder.decode(_nothing if bytes(payload) == b"null" else payload)
    except RecursionError:
        raise InvalidInput("the payload is nested too deep") from None
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the payload of {envelope.type!r:.80} is not what was expected: {error}") from None


def tell(type: str, payload: object, *, event_id: str | None = None) -> Frame:
    """Something that answers nothing, for one client or for many: it is encoded once. `event_id` is what a listener
    over server-sent events says as the last that it saw when it comes back; NO_PLACE makes it say none."""
    return Frame(_encoder.encode(_Told(type, payload)).decode(), event=type, id=event_id)


def answer(type: str, payload: object, id: MessageId, *, event_id: str | None = None) -> Frame:
    """An answer to the message with this id; `event_id` as for `tell`."""
    return Frame(_encoder.encode(_Answer(id, type, payload)).decode(), event=type, id=event_id)


def trouble(error: HeadwaterError, id: MessageId) -> Frame:
    """An error that answers the message with this id. Whoever is not known reads the word their client looks for."""
    if isinstance(error, Unauthenticated):
        return answer("error", Trouble("unauthorized", f"unauthorized: {error}"), id)
    return answer("error", Trouble(error.code, public_detail(error)), id)
