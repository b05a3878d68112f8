"""All guards of a server, put together from its settings: the one call that `headwater serve` makes."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

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
from headwater.model.command_template import CommandTemplate
from headwater.model.json_web_token import Expected
from headwater.stores.contract import Store

BURST_SECONDS = 2.0
DIGEST_LETTERS = 16
# What a server judges without its store, and where it finds its keys.
OUTSIDE = frozenset({"allowed_hosts", "allowed_origins", "jwt_secret", "jwt_secret_file", "jwt_keys_file"})
JWT = frozenset(name for name in AccessSettings.__struct_fields__ if name.startswith("jwt_"))
MINUTE = 60.0


def guarded(handler: Handler, settings: AccessSettings, store: Store, tail: Tail, clock: Clock) -> Handler:
    """The routes behind their guards. Without `auth`, whoever reaches this server is this machine's owner, so it
    answers only to this machine's names."""
    if settings.requests_per_second:
        handler = within_rate(handler, Allowances(_request_rate(settings)))
    if settings.auth:
        guesses = Allowances(Rate(settings.guesses_per_minute / MINUTE, settings.guesses_burst))
        handler = Reception(handler, make_verifiers(settings, store, tail), clock, guesses, rules=RuleBook(store, tail))
    return for_own_names(in_their_words(for_our_pages(handler, settings.allowed_origins)), settings)


def guarded_outside(handler: Handler, settings: AccessSettings) -> Handler:
    """The same as far as it needs no store, for what another server answers."""
    return for_own_names(for_our_pages(handler, settings.allowed_origins), settings)


def for_own_names(handler: Handler, settings: AccessSettings) -> Handler:
    """The same door under the names that it may be asked for by."""
    if settings.allowed_hosts or not settings.auth:
        return for_this_machine(handler, settings.allowed_hosts)
    return with_sound_host(handler)


def describe_guard(settings: AccessSettings, commands: Mapping[str, CommandTemplate]) -> str:
    """Who is let in and may do what, in a word that is the same on servers that agree on it: what proves who somebody
    is, and a digest of all else that a server decides only with its store. Keys and secrets are not in it: they change
    while servers run."""
    left_out = OUTSIDE if Auth.JWT in settings.auth else OUTSIDE | JWT
    told = {name: value for name, value in msgspec.structs.asdict(settings).items() if name not in left_out}
    sets = {name: sorted(value) if isinstance(value, tuple) else value for name, value in told.items()}
    digest = sha256(msgspec.json.encode([sets, commands], order="sorted")).hexdigest()
    return f"{'+'.join(sorted(settings.auth)) or 'none'}/{digest[:DIGEST_LETTERS]}"


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
