"""In front of a store that one broker holds at a time: answers here while it is held here, hands on to its holder else.

    client ─► broker that stands by ──the same request, signed──► broker that holds the store ─► store
           ◄─────────────────── its answer, as it comes ─────────┘

The client's own credentials go along, and the holder's guards look at them: a broker that stands by decides nothing.
What it adds is signed with a secret that lies beside the store: from which address the client came, and that the
request was handed on already. Such a request is never handed on again, so two brokers that each take the other for
the holder do not send it round and round.
"""

import hmac
import logging
from collections.abc import Callable
from hashlib import sha256

import msgspec

from headwater.doors.hop import Hop, HopFailed
from headwater.doors.wire import CONTINUE, Handler, Request, Response, problem_response, text_response
from headwater.errors import StoreError

log = logging.getLogger(__name__)

FORWARDED_HEADER = "x-headwater-forwarded"
METRICS = "/metrics"


class Front:
    """A `Handler`: whoever holds the store answers."""

    def __init__(self) -> None:
        # None until it is known: nobody is believed before.
        self._secret: bytes | None = None
        self._own_address = ""
        self._handler: Handler | None = None
        self._find_holder: Callable[[], str | None] = lambda: None
        self._trouble: StoreError | None = None
        self._hops: set[Hop] = set()
        self.forwarded = 0

    def join(self, secret: bytes, own_address: str) -> None:
        """Be one of the brokers of a store, which know each other by this secret."""
        self._secret, self._own_address = secret, own_address

    def serve(self, handler: Handler) -> None:
        """The store is held here from now on. What was handed on to whoever held it before is waited for no more."""
        self._handler, self._trouble = handler, None
        self._cut()

    def stand_by(self, find_holder: Callable[[], str | None]) -> None:
        """The store is held elsewhere, or by nobody; `find_holder` says where."""
        self._handler, self._find_holder = None, find_holder

    def tell(self, trouble: StoreError | None) -> None:
        """What is wrong with the store, that nobody holds it: whoever asked the last holder is told as well."""
        self._trouble = trouble
        if trouble is not None:
            self._cut()

    def holder(self) -> str:
        """Where requests are handed on to; '' when nobody knows."""
        found = self._find_holder() or ""
        return "" if found == self._own_address else found

    def _cut(self) -> None:
        for hop in list(self._hops):
            hop.cut()

    async def __call__(self, request: Request) -> Response:
        """The answer of the broker that holds the store."""
        if self._secret is None:
            return _busy(request, "this server has not got an answer from the bucket of its store yet; try again")
        mark = request.headers.get(FORWARDED_HEADER, "")
        client = self._signed_client(request, mark) if mark else None
        if client is not None:
            request = msgspec.structs.replace(request, client=client)
        if self._handler is not None:
            return await self._handler(request)
        if request.path == METRICS:
            return text_response(self._metrics())
        if client is not None:
            return _busy(request, "this broker does not hold the store, and was asked by another that took it for one")
        return CONTINUE if request.awaits_body else await self._hand_on(request)

    async def _hand_on(self, request: Request) -> Response:
        holder = self.holder()
        if not holder and self._trouble is not None:
            return _refusal(request, self._trouble)
        if not holder:
            return _busy(request, "another broker holds this store and has not said where it is reached; try again")
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
        return f"{request.client or '-'} {self._signature(request, request.client or '-')}"

    def _signature(self, request: Request, client: str) -> str:
        parts = (request.method, request.path, request.query, request.headers.get("host", ""), client)
        # Of the head alone: it is asked about before its body has come.
        told = "\n".join(parts).encode("latin-1", "replace")
        assert self._secret is not None
        return hmac.new(self._secret, told, sha256).hexdigest()

    def _signed_client(self, request: Request, mark: str) -> str | None:
        """The client that another broker of this store names; None when it is none that says so."""
        client, _, signature = mark.partition(" ")
        if not hmac.compare_digest(signature.encode(), self._signature(request, client).encode()):
            log.warning("request %s: it says that another broker has handed it on, and none has", request.id)
            return None
        return "" if client == "-" else client

    def _metrics(self) -> str:
        """What this broker can tell of itself: all else is told by the one that holds the store."""
        return (
            "# TYPE headwater_bucket_holds_store gauge\nheadwater_bucket_holds_store 0\n"
            f"# TYPE headwater_bucket_forwarded_total counter\nheadwater_bucket_forwarded_total {self.forwarded}\n"
        )


def _refusal(request: Request, error: StoreError) -> Response:
    return problem_response(503, error.code, str(error), request_id=request.id, headers=(("retry-after", "1"),))


def _busy(request: Request, detail: str) -> Response:
    return problem_response(503, "store_busy", detail, request_id=request.id, headers=(("retry-after", "1"),))
