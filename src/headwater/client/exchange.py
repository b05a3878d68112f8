"""A request and its answer, whatever happens on the way: repeated while that helps, and for so long only.

Every request may be repeated: what changes something carries a key, and the second one with that key gets the answer of
the first. So an answer that was lost is asked for again, and has one effect.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec

from headwater.client.address import Address
from headwater.client.connection import Broken, HttpResponse, Orphaned
from headwater.client.pool import Pool
from headwater.errors import (
    Closed,
    HeadwaterError,
    NotAllowed,
    Overloaded,
    QueueFull,
    RateExceeded,
    ServerRefused,
    ServerUnreachable,
    ServerUnreadable,
    StoreFull,
    TooLarge,
    Unauthenticated,
)
from headwater.log.home_loop import HomeLoop

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 2.0
DETAIL_LENGTH_MAX = 500

Result = TypeVar("Result")
Decoded = TypeVar("Decoded", covariant=True)


class Decoder(Protocol[Decoded]):
    """Reads an answer; one that is not what was expected raises an error of msgspec."""

    def decode(self, data: bytes, /) -> Decoded:
        """The value."""
        ...


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a client is patient, in seconds."""

    connect_seconds: float = 5.0
    """For a connection."""
    answer_seconds: float = 30.0
    """For an answer, beyond the time that a pop waits by itself."""
    retry_seconds: float = 30.0
    """For how long a request that failed is repeated, counted from its first try; 0 is never. The time that a pop may
    wait by itself does not count."""


class Said(msgspec.Struct, frozen=True):
    """The parts of a problem that are for programs."""

    code: str = ""
    detail: str = ""


class NotNow(Exception):
    """A try that failed and may succeed after a pause. Where a server only guesses how long that takes
    (`is_estimate`), it may be shorter."""

    def __init__(self, error: HeadwaterError, pause_seconds: float, *, is_estimate: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.pause_seconds = pause_seconds
        self.is_estimate = is_estimate


class Exchange:
    """Asks one server."""

    def __init__(
        self, address: Address, token: str, pool: Pool, timing: Timing, find_token: Callable[[], str] | None = None
    ) -> None:
        """`find_token` is asked when the server does not take the token: another may be where it is kept."""
        self._pool = pool
        self._timing = timing
        self._where = f"{address.authority}{address.prefix}"
        self._prefix = address.prefix
        self._token = token
        self._find_token = find_token
        self.home = HomeLoop("this client")
        self._head = f"host: {address.authority}\r\naccept: application/json\r\n"

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        decoder: Decoder[Result],
        *,
        wait_seconds: float = 0,
        orphaned: Orphaned | None = None,
    ) -> Result:
        """What the server answers, decoded; raises what it says is wrong, as if it had been raised here.

        `wait_seconds` is how long the server may wait before it begins to answer. `orphaned` gets what comes
        after the caller was cancelled.
        """
        self.home.check()
        token = self._token
        try:
            return await self._repeat(self._request(method, path, body), decoder, wait_seconds, orphaned)
        except Unauthenticated:
            self._token = token if self._find_token is None else self._find_token()
            if self._token == token:
                raise
        return await self._repeat(self._request(method, path, body), decoder, wait_seconds, orphaned)

    async def _repeat(
        self, request: bytes, decoder: Decoder[Result], wait_seconds: float, orphaned: Orphaned | None
    ) -> Result:
        """Ask until there is an answer, or its time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timing.retry_seconds
        for pause in _pauses():
            begun = loop.time()
            try:
                return await self._try(request, decoder, wait_seconds, orphaned)
            except NotNow as refusal:
                pause = max(pause, refusal.pause_seconds)
                # A pop that waited for long and was cut then has tried nothing in vain.
                deadline += min(loop.time() - begun, wait_seconds)
                left = deadline - loop.time()
                if refusal.is_estimate and left > 0:
                    pause = min(pause, left)
                if pause > left:
                    raise refusal.error from refusal.error.__cause__
                log.debug("asking %s again in %.2f s: %s", self._where, pause, refusal.error)
            await asyncio.sleep(pause)
        raise AssertionError("pauses have no end")

    def end_waits(self) -> None:
        """End the requests under way whose answers may be handed on, and take no more of them."""
        self._pool.end_waits()

    def close(self) -> None:
        """Cut all connections."""
        self._pool.close()

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        about = f"authorization: Bearer {self._token}\r\n" if self._token else ""
        if method == "POST":
            about += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._head}{about}\r\n".encode("latin-1") + body

    async def _try(
        self,
        request: bytes,
        decoder: Decoder[Result],
        wait_seconds: float,
        orphaned: Orphaned | None,
    ) -> Result:
        try:
            seconds = self._timing.answer_seconds + wait_seconds
            answer = await self._pool.exchange(request, seconds, waits=wait_seconds > 0, orphaned=orphaned)
        except Broken as broken:
            if broken.garbled:
                raise ServerUnreadable(f"{self._where}: {broken}") from broken
            unreachable = ServerUnreachable(f"{self._where}: {broken}")
            unreachable.__cause__ = broken
            raise NotNow(unreachable, 0) from None
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            error = error_of(answer, self._where)
            pause = _pause_of(answer, error)
            if pause is None:
                raise error
            # A limit of rates is told as it is; when maintenance or a restart is over, nobody knows.
            raise NotNow(error, pause, is_estimate=pause > 0 and answer.status != HTTPStatus.TOO_MANY_REQUESTS)
        try:
            return decoder.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ServerUnreadable(f"{self._where}: the answer is not what was expected: {error}") from error


# ── what went wrong ──


def error_of(answer: HttpResponse, where: str) -> HeadwaterError:
    """The error that an answer tells of: by its code one of the family, or that the server refused."""
    said = _read_problem(answer)
    detail = said.detail[:DETAIL_LENGTH_MAX]
    kind = _by_code().get(said.code) or _by_status.get(answer.status)
    if kind is Closed:
        return ServerUnreachable(f"{where} is being stopped")
    if kind is not None:
        # Whatever its constructor takes, the message is all there is to say.
        error = kind.__new__(kind, detail)
        Exception.__init__(error, detail or _phrase(answer.status))
        if isinstance(error, RateExceeded):
            error.retry_seconds = _seconds(answer.retry_after)
        return error
    reason = ", ".join(part for part in (said.code, detail) if part)
    return ServerRefused(f"{where} answered {answer.status} {_phrase(answer.status)}{': ' if reason else ''}{reason}")


def _read_problem(answer: HttpResponse) -> Said:
    try:
        return msgspec.json.decode(answer.body, type=Said)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Said()


_by_status: dict[int, type[HeadwaterError]] = {
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: NotAllowed,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TooLarge,
    HTTPStatus.TOO_MANY_REQUESTS: Overloaded,
}


@cache
def _by_code() -> dict[str, type[HeadwaterError]]:
    """The family by its codes; of two with one code, the one that was there first."""
    found: dict[str, type[HeadwaterError]] = {}
    kinds: list[type[HeadwaterError]] = [HeadwaterError]
    while kinds:
        kind = kinds.pop(0)
        if kind.__module__ == HeadwaterError.__module__ and kind is not HeadwaterError:
            found.setdefault(kind.code, kind)
        kinds.extend(kind.__subclasses__())
    return found


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an unknown status"


# ── whether to ask again ──

# The caller decides about these: waiting does not make room by itself.
_final = (QueueFull, StoreFull)
_worth_another_try = {500, 502, 503, 504}


def _pause_of(answer: HttpResponse, error: HeadwaterError) -> float | None:
    """After how many seconds to ask again; None when that would not help."""
    if isinstance(error, _final):
        return None
    helps = error.retryable
    if isinstance(error, ServerRefused):
        helps = answer.status in _worth_another_try
    return _seconds(answer.retry_after) if helps else None


def _seconds(text: str) -> float:
    """What Retry-After says, when it says seconds."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _pauses() -> Iterator[float]:
    """Longer and longer, and never two clients in step."""
    pause = PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def encode(value: Any) -> bytes:
    """A request's body."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, Any] = {}


def decoder_of(kind: type[Result]) -> "msgspec.json.Decoder[Result]":
    """Reads answers of a kind."""
    decoder: msgspec.json.Decoder[Result] | None = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder
