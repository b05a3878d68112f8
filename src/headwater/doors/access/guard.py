"""All guards of a server, put together from its settings: the one call that `headwater serve` makes."""

from headwater.clock import Clock
from headwater.doors.access.browser import for_our_pages
from headwater.doors.access.keys import Keyring, read_bounded
from headwater.doors.access.rates import Allowances, within_rate
from headwater.doors.access.reception import Reception
from headwater.doors.access.rules import RuleBook
from headwater.doors.access.settings import AccessSettings, Auth
from headwater.doors.access.tokens import TokenVerifier
from headwater.doors.access.verifiers import Verifier
from headwater.doors.documents.errors import in_their_words
from headwater.doors.hosts import for_this_machine, with_sound_host
from headwater.doors.wire import Handler
from headwater.errors import ConfigError
from headwater.log.tail import Tail
from headwater.model.allowance import Rate
from headwater.model.json_web_token import Expected
from headwater.stores.contract import Store

BURST_SECONDS = 2.0
MINUTE = 60.0


def guarded(handler: Handler, settings: AccessSettings, store: Store, tail: Tail, clock: Clock) -> Handler:
    """The routes behind their guards. Without `auth`, whoever reaches this server is this machine's owner, so it
    answers only to this machine's names."""
    if settings.requests_per_second:
        handler = within_rate(handler, Allowances(_request_rate(settings)))
    if settings.auth:
        guesses = Allowances(Rate(settings.guesses_per_minute / MINUTE, settings.guesses_burst))
        handler = Reception(handler, make_verifiers(settings, store, tail), clock, guesses, rules=RuleBook(store, tail))
    handler = in_their_words(for_our_pages(handler, settings.allowed_origins))
    if settings.allowed_hosts or not settings.auth:
        return for_this_machine(handler, settings.allowed_hosts)
    return with_sound_host(handler)


def make_verifiers(settings: AccessSettings, store: Store, tail: Tail) -> list[Verifier]:
    """One for each kind of credential that is taken."""
    verifiers: list[Verifier] = []
    if Auth.TOKEN in settings.auth:
        verifiers.append(TokenVerifier(store, tail))
    if Auth.JWT in settings.auth:
        verifiers.append(_jwt_verifier(settings))
    return verifiers


def _jwt_verifier(settings: AccessSettings) -> Verifier:
    # Here, because a server without it need not load what checks signatures.
    from headwater.doors.access.json_web_tokens import JsonWebTokenVerifier

    keyring = Keyring(_secret(settings), settings.jwt_keys_file)
    missing = [algorithm for algorithm in settings.jwt_algorithms if algorithm not in keyring.algorithms()]
    if missing:
        raise ConfigError(f"there is no key for {', '.join(missing)}: set jwt_secret for HS256, else jwt_keys_file")
    expected = Expected(
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
        leeway_seconds=settings.jwt_leeway_seconds,
        role_claims=settings.jwt_role_claims,
        database_claim=settings.jwt_database_claim,
        queues_claim=settings.jwt_queues_claim,
    )
    return JsonWebTokenVerifier(keyring, settings.jwt_algorithms, expected)


def _secret(settings: AccessSettings) -> bytes:
    if settings.jwt_secret_file:
        return read_bounded("jwt_secret_file", settings.jwt_secret_file).rstrip(b"\r\n")
    return settings.jwt_secret.encode()


def _request_rate(settings: AccessSettings) -> Rate:
    burst = settings.requests_burst or max(1.0, settings.requests_per_second * BURST_SECONDS)
    return Rate(settings.requests_per_second, burst)
