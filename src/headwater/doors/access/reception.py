"""Finds out who asks, once: a credential that was verified is known again by its hash for a while.

    known and fresh ─► principal                                        microseconds
    anything else ─► verify ─► principal
                        └─ not good ─► was known, or guesses left: 401, and one guess less; none left: 429

Knowing ends with the credential's own time, with `KNOWN_SECONDS`, or at once when its verifier's version changes. A
credential that is good passes whatever came from its address before: behind one address may be a whole office, and who
guesses there must not keep the others out. Guessing gains nothing by it, because what is guessed at has 256 bits. What
was waited for, the messages of a pop, a job's end, the next piece of a stream, is given only to who is still known.
"""

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from hashlib import sha256

import msgspec

from headwater.clock import Clock, Timestamp
from headwater.doors.access.rates import Allowances, address_key
from headwater.doors.access.refusals import refusal
from headwater.doors.access.rules import RuleBook
from headwater.doors.access.verifiers import Verified, Verifier
from headwater.doors.wire import (
    EVENT_STREAM,
    LATE_PATHS,
    OPEN_PATHS,
    BrokenOff,
    Handler,
    Request,
    Response,
    is_for_pages,
    is_lasting,
    not_delivered,
    problem_response,
)
from headwater.errors import HeadwaterError, RateExceeded, Unauthenticated
from headwater.model.document import collection_of
from headwater.model.principal import NOBODY, Principal, require_queue

log = logging.getLogger(__name__)

KNOWN_SECONDS = 30.0
KNOWN_MAX = 10_000
CREDENTIAL_BYTES_MAX = 8 * 1_024
RULES_CHANGED = "the access rules were changed while this was answered; ask again"


class _Known(msgspec.Struct, frozen=True, gc=False):
    """Somebody who was verified: as of which version, and until when that needs no second look."""

    principal: Principal
    version: tuple[int, int]
    until: Timestamp | None
    fresh_until: float


class _Wait:
    """Whether a request has begun to wait for something that may take long, and how its transport is told."""

    __slots__ = ("begun", "park")

    def __init__(self, park: Callable[[], None]) -> None:
        self.park = park
        self.begun = False

    def __call__(self) -> None:
        self.begun = True
        self.park()


class _Standing:
    """What somebody could read when an answer began: of the queues and collections that it is made of, or, where it
    names none, of all. It is theirs as long as that is the same. Rules of other collections change nothing."""

    def __init__(self, principal: Principal, used: Sequence[str]) -> None:
        self._principal = principal
        self._used = used
        self._before = self._seen_by(principal)

    def holds_for(self, principal: Principal) -> bool:
        """Whether somebody who is known anew reads the same."""
        return principal is self._principal or self._seen_by(principal) == self._before

    def _seen_by(self, principal: Principal) -> object:
        if not self._used:
            return principal.reach
        collections = [collection for queue in self._used if (collection := collection_of(queue)) is not None]
        return [principal.may_use(queue) for queue in self._used], [principal.permit(name) for name in collections]


class Reception:
    """Asks every request for its credential and hands it on with its principal. A `Handler`."""

    def __init__(
        self,
        handler: Handler,
        verifiers: Sequence[Verifier],
        clock: Clock,
        guesses: Allowances,
        monotonic: Callable[[], float] = time.monotonic,
        rules: RuleBook | None = None,
    ) -> None:
        self._handler = handler
        self._verifiers = tuple(verifiers)
        self._clock = clock
        self._guesses = guesses
        self._monotonic = monotonic
        self._rules = rules
        self._known: dict[bytes, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def __call__(self, request: Request) -> Response:
        """The routes' answer, or a refusal."""
        if request.path in OPEN_PATHS or is_for_pages(request.path):
            return await self._handler(msgspec.structs.replace(request, principal=NOBODY))
        if is_lasting(request.path):
            request = msgspec.structs.replace(request, identify=partial(self.identify, request))
            if request.path in LATE_PATHS and "authorization" not in request.headers:
                return await self._handler(msgspec.structs.replace(request, principal=NOBODY))
        try:
            principal = await self.principal_of(request)
        except HeadwaterError as error:
            return refusal(request, error)
        wait = _Wait(request.park)
        used: list[str] = []
        response = await self._handler(
            msgspec.structs.replace(
                request, principal=principal, park=wait, used=used, is_known=partial(self._is_known, request)
            )
        )
        if response.chunks is not None:
            return await self._hand_over_stream(request, _Standing(principal, used), response)
        if response.done or not (wait.begun or response.undelivered):
            return response
        return await self._hand_over(request, response, used)

    async def _hand_over(self, request: Request, response: Response, used: Sequence[str]) -> Response:
        """What was waited for, perhaps for long: to somebody whose credential was revoked meanwhile it is not given,
        nor what access rules have taken from them."""
        try:
            principal = await self.principal_of(request)
            for queue in used:
                require_queue(principal, queue)
        except BaseException as error:
            if response.undelivered is not None:
                response.undelivered()
            if isinstance(error, HeadwaterError):
                return refusal(request, error)
            raise
        return response

    async def _hand_over_stream(self, request: Request, standing: "_Standing", response: Response) -> Response:
        """What comes in pieces, as long as it is theirs. Before the first of them it can be refused as a whole."""
        assert response.chunks is not None
        try:
            is_theirs = standing.holds_for(await self.principal_of(request))
        except HeadwaterError as error:
            refused: Response | None = refusal(request, error)
        else:
            refused = (
                None if is_theirs else problem_response(503, "rules_changed", RULES_CHANGED, request_id=request.id)
            )
        if refused is not None:
            await response.chunks.aclose()
            not_delivered(response)
            return refused
        # A stream of events is never whole: who listens comes back, and is told then.
        is_endless = response.content_type == EVENT_STREAM
        chunks = self._while_theirs(request, standing, response.chunks, is_endless=is_endless)
        return msgspec.structs.replace(response, chunks=chunks)

    async def _while_theirs(
        self, request: Request, standing: "_Standing", chunks: AsyncGenerator[bytes, None], *, is_endless: bool
    ) -> AsyncGenerator[bytes, None]:
        """A stream that ends, in the middle, for somebody who is not known any more, or is held to other rules."""
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                try:
                    why = "" if standing.holds_for(await self.principal_of(request)) else RULES_CHANGED
                except HeadwaterError as error:
                    why = str(error)
                if why and is_endless:
                    return
                if why:
                    raise BrokenOff(why)
                yield chunk

    async def principal_of(self, request: Request) -> Principal:
        """Who asks. Raises Unauthenticated, or RateExceeded after too many guesses."""
        return await self.identify(request, bearer_credential(request.headers))

    async def identify(self, request: Request, credential: str) -> Principal:
        """Whose a credential is that came with a request, or in the conversation that the request began."""
        check_credential(credential)
        name = sha256(credential.encode()).digest()
        verifier = self._verifier_for(credential)
        known = self._known.get(name)
        if verifier is not None and known is not None and self._is_fresh(known, verifier):
            return known.principal
        try:
            return await self._verify(name, credential, verifier)
        except Unauthenticated as error:
            was_known = self._known.pop(name, None) is not None
            if not was_known:
                self._count_guess(address_key(request.client))
            log.info("request %s from %s refused: %s", request.id, request.client or "unknown", error)
            raise Unauthenticated("the credential is not valid, or not any more") from None

    def _is_known(self, request: Request) -> bool:
        """Whether the credential of a request that was let in is good still, without verifying it anew: when in doubt,
        it is not, and who asks again is verified."""
        credential = bearer_credential(request.headers)
        known = self._known.get(sha256(credential.encode()).digest())
        verifier = self._verifier_for(credential)
        return known is not None and verifier is not None and self._holds(known, verifier)

    def _verifier_for(self, credential: str) -> Verifier | None:
        return next((verifier for verifier in self._verifiers if verifier.fits(credential)), None)

    def _is_fresh(self, known: _Known, verifier: Verifier) -> bool:
        return self._monotonic() < known.fresh_until and self._holds(known, verifier)

    def _holds(self, known: _Known, verifier: Verifier) -> bool:
        if known.version != self._version(verifier):
            return False
        return known.until is None or self._clock.now() < known.until

    def _version(self, verifier: Verifier) -> tuple[int, int]:
        return verifier.version(), 0 if self._rules is None else self._rules.version()

    def _count_guess(self, guesser: str) -> None:
        """One that was not good. Who has none left is told so, and the log is spared the rest."""
        wait = self._guesses.take(guesser)
        if wait:
            raise RateExceeded("too many credentials that are not valid came from this address", wait)

    async def _verify(self, name: bytes, credential: str, verifier: Verifier | None) -> Principal:
        if verifier is None:
            raise Unauthenticated("no such kind of credential is taken here")
        # Before verifying: what changes meanwhile must show.
        version = self._version(verifier)
        verified = await verifier.verify(credential, self._clock.now())
        if self._rules is not None:
            verified = Verified(await self._rules.held(verified.principal), verified.until)
        self._remember(name, verified, version)
        return verified.principal

    def _remember(self, name: bytes, verified: Verified, version: tuple[int, int]) -> None:
        self._known.pop(name, None)
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        fresh_until = self._monotonic() + KNOWN_SECONDS
        self._known[name] = _Known(verified.principal, version, verified.until, fresh_until)


def bearer_credential(headers: dict[str, str]) -> str:
    """The credential in `Authorization: Bearer …`. Two of them, or one with spaces or other letters, are none."""
    header = headers.get("authorization", "")
    kind, _, credential = header.partition(" ")
    if kind.lower() != "bearer" or not credential:
        raise Unauthenticated("this needs a credential: send the header Authorization: Bearer <token>")
    check_credential(credential)
    return credential


def check_credential(credential: str) -> None:
    """Raises when this can be nobody's."""
    if len(credential) > CREDENTIAL_BYTES_MAX or not _is_plain(credential):
        raise Unauthenticated("the credential is not valid, or not any more")


def _is_plain(credential: str) -> bool:
    """Only letters that are seen, and none that separates: a header that was sent twice comes joined by a comma."""
    return credential.isascii() and credential.isprintable() and " " not in credential and "," not in credential
