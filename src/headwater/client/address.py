"""Where a server is: the parts of a URL that a client needs, checked once."""

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from headwater.errors import ConfigError

PORT_DEFAULT = 6632
TLS_PORT_DEFAULT = 443


class Address(NamedTuple):
    """A server: `prefix` is where it is mounted, `authority` what it is called in the Host header."""

    host: str
    port: int
    authority: str
    prefix: str
    tls: ssl.SSLContext | None


def parse_address(url: str, tls: ssl.SSLContext | None = None) -> Address:
    """The address in a URL: http or https, a host, a port (6632 and 443 when none is said), a path when mounted.

    >>> parse_address("http://127.0.0.1:6632").port
    6632
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError):
        raise ConfigError(f"a server's address is like http://127.0.0.1:6632; got {url!r:.200}") from None
    if parts.username is not None or parts.password is not None:
        # Not shown: it may hold a secret.
        raise ConfigError("a server's address has no user or password in it; give the token as `token`")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"a server's address is like http://127.0.0.1:6632; got {url!r:.200}")
    if not _is_plain(parts.netloc + parts.path):
        raise ConfigError(f"a server's address is plain ASCII without spaces; got {url!r:.200}")
    secure = parts.scheme == "https"
    if tls is not None and not secure:
        raise ConfigError("tls is for addresses that begin with https://")
    return Address(
        host=parts.hostname,
        port=(TLS_PORT_DEFAULT if secure else PORT_DEFAULT) if port is None else port,
        authority=parts.netloc,
        prefix=parts.path.rstrip("/"),
        tls=(tls or ssl.create_default_context()) if secure else None,
    )


def trust(tls: ssl.SSLContext | str | None, name: str = "tls") -> ssl.SSLContext | None:
    """Whom to trust: as it is, or by the name of a file with certificates; `name` is what callers call it."""
    if not isinstance(tls, str):
        return tls
    try:
        return ssl.create_default_context(cafile=tls)
    except OSError as error:
        raise ConfigError(f"{name} must be a file with certificates (PEM); {tls!r:.200} is not: {error}") from error


def check_token(token: object) -> str:
    """A bearer token as it can stand in a header; never shown, not even when it is wrong."""
    if not isinstance(token, str) or not _is_plain(token):
        raise ConfigError("a token is plain ASCII without spaces")
    return token


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
