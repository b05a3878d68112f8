"""How a server is guarded: read once from `HEADWATER_*` variables and from options, checked at once, passed as a value.

Secrets come from the environment or from files, never from options: a command line can be read by everybody.
"""

import math
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from headwater.config import ENVIRONMENT_PREFIX, convert_settings
from headwater.doors.access.keys import Algorithm
from headwater.doors.hosts import ANY_NAME
from headwater.errors import ConfigError


class Auth(StrEnum):
    """What is taken as proof of who somebody is."""

    TOKEN = "token"
    JWT = "jwt"


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about who may do what."""

    auth: tuple[Auth, ...] = ()
    """What is taken as proof: token, jwt or both; none leaves the server to this machine's own users."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may be sent to, besides localhost, 127.0.0.1 and [::1]; `*` leaves that to others."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may use this server, besides its own."""
    requests_per_second: float = 0.0
    """For each principal, or each address where nobody has a name; 0 is without limit."""
    requests_burst: int = 0
    """Requests at once; 0 is what comes in two seconds."""
    guesses_per_minute: float = 10.0
    """Credentials that are not valid, from one address."""
    guesses_burst: int = 20
    """Such credentials at once."""
    jwt_algorithms: tuple[Algorithm, ...] = ()
    """HS256, RS256, EdDSA: those that are taken."""
    jwt_secret: str = ""
    """The secret of HS256, at least 32 bytes."""
    jwt_secret_file: str = ""
    """A file that holds it."""
    jwt_keys_file: str = ""
    """A JWKS, or a public key as PEM, for RS256 and EdDSA. It is read again when it changes."""
    jwt_audience: tuple[str, ...] = ()
    """What `aud` must name, one of these."""
    jwt_issuer: str = ""
    """What `iss` must be."""
    jwt_leeway_seconds: float = 10.0
    """How far clocks may be apart."""
    jwt_role_claims: tuple[str, ...] = ("role", "roles")
    """The claims that hold roles; a path such as realm_access.roles leads into a claim."""
    jwt_database_claim: str = "database"
    """The claim that names the database (tenant); a token without it is for `main`."""
    jwt_queues_claim: str = "queues"
    """The claim that holds queue patterns; a token without it is for all queues."""

    def __repr__(self) -> str:
        shown = {**msgspec.structs.asdict(self), "jwt_secret": "***" if self.jwt_secret else ""}
        return f"AccessSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


LISTS = (
    "auth",
    "allowed_hosts",
    "allowed_origins",
    "jwt_algorithms",
    "jwt_audience",
    "jwt_role_claims",
)
LEEWAY_SECONDS_MAX = 300.0


def load_access(environment: Mapping[str, str] | None = None, **options: Any) -> AccessSettings:
    """The settings from `HEADWATER_*` variables, with those given by name laid over them."""
    source = os.environ if environment is None else environment
    variables = {name: ENVIRONMENT_PREFIX + name.upper() for name in AccessSettings.__struct_fields__}
    found = {name: source[variable] for name, variable in variables.items() if source.get(variable)}
    if unknown := sorted(set(options) - set(variables)):
        raise ConfigError(f"no such setting of access: {', '.join(unknown)}; there are {', '.join(variables)}")
    values = {name: _split(name, value) for name, value in {**found, **options}.items()}
    _check_auth(values.get("auth", ()))
    settings = convert_settings(values, AccessSettings)
    _check(settings)
    return settings


def _split(name: str, value: object) -> object:
    """A list is written with commas; `auth=none` is an empty one."""
    if name not in LISTS or not isinstance(value, str):
        return value
    texts = [text.strip() for text in value.split(",") if text.strip()]
    return [] if name == "auth" and texts == ["none"] else texts


def _check_auth(kinds: object) -> None:
    if not isinstance(kinds, list | tuple) or not set(map(str, kinds)) <= set(Auth):
        came = ",".join(map(str, kinds)) if isinstance(kinds, list | tuple) else kinds
        raise ConfigError(f"auth must be none, {', '.join(Auth)}, or {','.join(Auth)}; got {came!r:.80}")


def _check(settings: AccessSettings) -> None:
    for name in ("requests_per_second", "requests_burst"):
        if not 0 <= getattr(settings, name) < math.inf:
            raise ConfigError(f"{name} must be 0 or above; got {getattr(settings, name)!r}")
    for name in ("guesses_per_minute", "guesses_burst"):
        if not 0 < getattr(settings, name) < math.inf:
            raise ConfigError(f"{name} must be above 0; got {getattr(settings, name)!r}")
    if not 0 <= settings.jwt_leeway_seconds <= LEEWAY_SECONDS_MAX:
        raise ConfigError(
            f"jwt_leeway_seconds must be 0 to {LEEWAY_SECONDS_MAX:g}; got {settings.jwt_leeway_seconds!r}"
        )
    for origin in settings.allowed_origins:
        if not origin.startswith(("http://", "https://")) or origin.count("/") != 2 or "*" in origin:
            raise ConfigError(f"allowed_origins are written like https://app.example.org; got {origin!r}")
    for host in settings.allowed_hosts:
        if host == ANY_NAME:
            continue
        if "/" in host or "*" in host or (":" in host and not host.endswith("]")):
            raise ConfigError(f"allowed_hosts are names without scheme and port; got {host!r}")
    if Auth.JWT in settings.auth:
        _check_jwt(settings)


def _check_jwt(settings: AccessSettings) -> None:
    """Nothing is guessed: each algorithm is named, and has a key."""
    if not settings.jwt_algorithms:
        raise ConfigError(f"jwt_algorithms must name what is taken: {', '.join(Algorithm)}")
    has_secret = bool(settings.jwt_secret or settings.jwt_secret_file)
    if settings.jwt_secret and settings.jwt_secret_file:
        raise ConfigError("jwt_secret and jwt_secret_file say the same thing; set one of them")
    if not has_secret and not settings.jwt_keys_file:
        raise ConfigError("jwt needs keys: set jwt_keys_file, or jwt_secret or jwt_secret_file for HS256")
    if has_secret and Algorithm.HS256 not in settings.jwt_algorithms:
        raise ConfigError("jwt_secret is for HS256, which jwt_algorithms does not name")
