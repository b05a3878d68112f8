"""In front of a store that one broker holds at a time: answers here while it is held here, hands on to its holder else.

    client ─► broker that stands by ──the same request, signed──► broker that holds the store ─► store
           ◄─────────────────── its answer, as it comes ─────────┘

What can be judged without the store (names of hosts, origins of pages) is judged here, by the settings of this broker.
Who the client is, only the store can tell: the client's own credentials go along, and the holder's guards look at them.
So nothing is handed on to a holder that is guarded otherwise than this broker: what it says of that, in the log of the
store, must be what this one says of itself. It may have been started anew since; so the request says it as well, and
the holder refuses what was meant for another guard.

What is added is signed with a secret that lies beside the store: from which address the client came, and that the
request was handed on already. Such a request is never handed on again, so two brokers that each take the other for
the holder do not send it round and round.
"""

import hmac
import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from headwater.doors.hop import Hop, HopFailed
from headwater.doors.hosts import is_loopback
from headwater.doors.metrics import show_store
from headwater.doors.wire import CONTINUE, Handler, Request, Response, problem_response
from headwater.errors import StoreError
from headwater.stores.contract import Holder

log = logging.getLogger(__name__)

FORWARDED_HEADER = "x-headwater-forwarded"
METRICS = frozenset({"/metrics", "/metrics/prometheus"})


class Front:
    """A `Handler`: whoever holds the store answers. `guards` stand before what is handed on; whether callers are asked
    who they are, and connections are encrypted, is not given up by handing on."""

    def __init__(
        self,
        guards: Callable[[Handler], Handler] = lambda handler: handler,
        *,
        asks_who: bool = False,
        is_encrypted: bool = False,
    ) -> None:
        self._elsewhere = guards(self._answer_elsewhere)
        self._asks_who = asks_who
        self._is_encrypted = is_encrypted
        # None until it is known: nobody is believed before.
        self._secret: bytes | None = None
        self._own = Holder("")
        self._handler: Handler | None = None
        self._find_holder: Callable[[], Holder | None] = lambda: None
        self._count: Callable[[], Mapping[str, float]] = dict
        self._told = ""
        self._trouble: StoreError | None = None
        self._hops: set[Hop] = set()
        self.forwarded = 0

    def join(self, secret: bytes, own: Holder) -> None:
        """Be one of the brokers of a store, which know each other by this secret."""
        self._secret, self._own = secret, own

    def serve(self, handler: Handler) -> None:
        """The store is held here from now on. What was handed on to whoever held it before is waited for no more."""
        self._handler, self._trouble = handler, None
        self._cut()

    def stand_by(
        self, find_holder: Callable[[], Holder | None], count: Callable[[], Mapping[str, float]] = dict
    ) -> None:
        """The store is held elsewhere, or by nobody; `find_holder` says by whom. `count` tells what waiting for it has
        asked of the bucket."""
        self._handler, self._find_holder, self._count = None, find_holder, count

    def tell(self, trouble: StoreError | None) -> None:
        """What is wrong with the store, that nobody holds it: whoever asked the last holder is told as well."""
        self._trouble = trouble
        if trouble is not None:
            self._cut()

    def holder(self) -> Holder | None:
        """Who could be asked; None when nobody knows where that is."""
        found = self._find_holder()
        return None if found is None or found.address in ("", self._own.address) else found

    def objection(self) -> str:
        """Why nothing is handed on to whoever holds the store; '' when it is. The log is told when that changes."""
        holder = self.holder()
        told = "" if holder is None else judge_holder(self._own, holder, is_encrypted=self._is_encrypted)
        if told and told != self._told:
            log.error("%s", told)
        self._told = told
        return told

    def _cut(self) -> None:
        for hop in list(self._hops):
            hop.cut()

    async def __call__(self, request: Request) -> Response:
        """The answer of the broker that holds the store."""
        if self._secret is None:
            return _busy(request, "this server has not got an answer from the bucket of its store yet; try again")
        mark = request.headers.get(FORWARDED_HEADER, "")
        sent = self._signed(request, mark) if mark else None
        if sent is None:
            return await (self._elsewhere if self._handler is None else self._handler)(request)
        if self._handler is None:
            return _busy(request, "this broker does not hold the store, and was asked by another that took it for one")
        client, guard = sent
        if guard != self._own.guard:
            log.error(
                "request %s: a broker that is guarded otherwise (%s, here %s) has handed it on, and it is refused: %s",
                *(request.id, guard, self._own.guard, REMEDY),
            )
            return _busy(request, NOT_HANDED_ON)
        return await self._handler(msgspec.structs.replace(request, client=client))

    async def _answer_elsewhere(self, request: Request) -> Response:
        """What the holder answers, or what this broker can say of itself."""
        if request.path in METRICS:
            return await self._show_metrics(request)
        return CONTINUE if request.awaits_body else await self._hand_on(request)

    async def _show_metrics(self, request: Request) -> Response:
        """What this broker counts. Who may read that, the holder knows, where callers are asked who they are."""
        if self._asks_who:
            answer = await self._hand_on(request)
            if answer.chunks is not None:
                await answer.chunks.aclose()
            if answer.status != HTTPStatus.OK:
                return answer
        # All else is told by the one that holds the store.
        own = {"bucket_holds_store": 0.0, "bucket_forwarded_total": self.forwarded}
        return show_store({**self._count(), **own})

    async def _hand_on(self, request: Request) -> Response:
        found = self.holder()
        if found is None and self._trouble is not None:
            return _refusal(request, self._trouble)
        if found is None:
            return _busy(request, "another broker holds this store and has not said where it is reached; try again")
        if self.objection():
            return _busy(request, NOT_HANDED_ON)
        holder = found.address
        self.forwarded += 1
        hop = Hop(holder, request, {FORWARDED_HEADER: self._sign(request)})
        self._hops.add(hop)
        try:
            if request.method == "GET":
                # It may wait for long, as a pop does: who hangs up here hangs up there.
                request.park()
            response = await hop.go()
        except HopFailed as error:
            if self._trouble is not None:
                return _refusal(request, self._trouble)
            log.warning("request %s: the broker at %s cannot be asked: %s", request.id, holder, error)
            return _busy(request, f"the broker at {holder} holds this store and cannot be asked now ({error})")
        finally:
            self._hops.discard(hop)
        if response.chunks is not None or response.session is not None:
            self._watch(hop)
        return response

    def _watch(self, hop: Hop) -> None:
        """What goes on for long ends when the store is somebody else's."""
        self._hops.add(hop)
        hop.on_cut = lambda: self._hops.discard(hop)

    # ── between brokers ──

    def _sign(self, request: Request) -> str:
        client, guard = request.client or "-", self._own.guard or "-"
        return f"{client} {guard} {self._signature(request, client, guard)}"

    def _signature(self, request: Request, client: str, guard: str) -> str:
        parts = (request.method, request.path, request.query, request.headers.get("host", ""), client, guard)
        # Of the head alone: it is asked about before its body has come.
        told = "\n".join(parts).encode("latin-1", "replace")
        assert self._secret is not None
        return hmac.new(self._secret, told, sha256).hexdigest()

    def _signed(self, request: Request, mark: str) -> tuple[str, str] | None:
        """The client that another broker of this store names, and the guard that one has; None when it is none that
        says so."""
        client, _, rest = mark.partition(" ")
        guard, _, signature = rest.partition(" ")
        if not hmac.compare_digest(signature.encode(), self._signature(request, client, guard).encode()):
            log.warning("request %s: it says that another broker has handed it on, and none has", request.id)
            return None
        return "" if client == "-" else client, "" if guard == "-" else guard


REMEDY = (
    "start all brokers of a store with the same --auth, --jwt-*, --requests-per-second and --job-commands, and the "
    "same variables for these"
)
# To anybody who asks: how the other one is guarded is for the log alone.
NOT_HANDED_ON = "the broker that holds this store is guarded otherwise than this one: the logs of both tell more"


def judge_holder(own: Holder, holder: Holder, *, is_encrypted: bool) -> str:
    """Why a broker must not hand on to that holder; '' when it may."""
    if holder.guard != own.guard:
        theirs = holder.guard or "it does not say how"
        return (
            f"the broker at {holder.address} holds the store and is guarded otherwise than this one ({theirs}, here "
            f"{own.guard}): nothing is handed on to it; {REMEDY}"
        )
    parts = urlsplit(holder.address)
    if is_encrypted and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return (
            f"the broker at {holder.address} holds the store and does not speak TLS, as this one does: nothing is "
            "handed on to it; give it a certificate, too, or an address at which it is reached by https (--advertise)"
        )
    return ""


def _refusal(request: Request, error: StoreError) -> Response:
    return problem_response(503, error.code, str(error), request_id=request.id, headers=(("retry-after", "1"),))


def _busy(request: Request, detail: str) -> Response:
    return problem_response(503, "store_busy", detail, request_id=request.id, headers=(("retry-after", "1"),))
