"""Messages that come faster than they are passed on: cursors, and types that are declared so.

They gather here, the latest of each key or merged, and go on together: one batch of cursors for each room, one message
for each key of other types. Whoever sent one is answered when it goes on.
"""

import asyncio
from collections.abc import Callable

import msgspec

from headwater.config import Durability, strongest
from headwater.model.room import CURSOR_BATCH, Coalescing, check_object, cursor_batch, merged


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message for a room, checked."""

    database: str
    room: str
    type: str
    data: msgspec.Raw
    sender: str = ""
    key: str = ""
    durability: Durability
    """What it goes on with."""
    at_least: Durability = Durability.MEMORY
    """What its sender asked for, and not only its type: less is refused."""
    ttl_seconds: float | None = None
    """How long it is kept; None for the setting of rooms."""


class Sent(msgspec.Struct, frozen=True):
    """What became of a message: its offset when it is kept, and how safe it is."""

    offset: int | None
    durability: Durability


class _Waiting(msgspec.Struct, eq=False):
    message: NewMessage
    answers: list[asyncio.Future[Sent]]


Pass = Callable[[NewMessage], asyncio.Future[Sent]]


class Gathering:
    """What waits for the next interval. One timer for all rooms, while something waits."""

    def __init__(self, seconds: Callable[[], float], pass_on: Pass) -> None:
        self._seconds = seconds
        self._pass_on = pass_on
        # By database, room, type, and key or, where there is none, sender: a key may be anybody's name.
        self._waiting: dict[tuple[str, str, str, str, str], _Waiting] = {}
        self._cursors: dict[tuple[str, str], dict[str, msgspec.Raw]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add_cursor(self, message: NewMessage) -> None:
        """Keep the latest cursor of its sender; nobody is answered."""
        self._cursors.setdefault((message.database, message.room), {})[message.sender] = message.data
        self._flush_later()

    def add(self, message: NewMessage, coalescing: Coalescing) -> asyncio.Future[Sent]:
        """Lay a message over the one of its key that waits."""
        if coalescing is Coalescing.MERGE:
            check_object(message.data)
        sender = "" if message.key else message.sender
        about = (message.database, message.room, message.type, message.key, sender)
        waiting = self._waiting.get(about)
        if waiting is None:
            waiting = self._waiting[about] = _Waiting(message, [])
        else:
            waiting.message = laid_over(waiting.message, message, coalescing)
        answer: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        waiting.answers.append(answer)
        self._flush_later()
        return answer

    def flush(self) -> None:
        """Pass on what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cursors, self._cursors = self._cursors, {}
        waiting, self._waiting = self._waiting, {}
        for (database, room), latest in cursors.items():
            batch = NewMessage(
                database=database,
                room=room,
                type=CURSOR_BATCH,
                data=cursor_batch(latest.items()),
                durability=Durability.MEMORY,
            )
            self._pass_on(batch).add_done_callback(_look_at)
        for one in waiting.values():
            self._pass_on(one.message).add_done_callback(lambda sent, one=one: _answer_all(sent, one.answers))  # type: ignore[misc]

    def _flush_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds(), self.flush)


def laid_over(before: NewMessage, message: NewMessage, coalescing: Coalescing) -> NewMessage:
    """What goes on of two messages of one key: as safe as any of their senders asked for. Fields of several senders are
    from none of them."""
    data, sender = message.data, message.sender
    if coalescing is Coalescing.MERGE:
        data = merged(before.data, data)
        sender = sender if sender == before.sender else ""
    return msgspec.structs.replace(
        message,
        data=data,
        sender=sender,
        durability=strongest(before.durability, message.durability),
        at_least=strongest(before.at_least, message.at_least),
    )


def _answer_all(sent: asyncio.Future[Sent], answers: list[asyncio.Future[Sent]]) -> None:
    error = asyncio.CancelledError() if sent.cancelled() else sent.exception()
    for answer in answers:
        if answer.done():
            continue
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(sent.result())


def _look_at(sent: asyncio.Future[Sent]) -> None:
    """Cursors that were not taken are followed by others; that they were not is told by whoever refused them."""
    if not sent.cancelled():
        sent.exception()
