"""Where a store is: a database of a server, and a schema in it.

    postgresql://user@host:5432/name?schema=orders

Everything but `schema` is libpq's own: several hosts, `sslmode`, a password from `PGPASSWORD` or a password file. The
schema is made when it is not there; a database can hold several stores.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headwater.errors import ConfigError

SCHEMA_DEFAULT = "headwater"
NAME_BYTES_MAX = 63
_OURS = "schema"
# A server that has vanished is noticed within a minute, also while an answer is awaited.
_defaults = {
    "application_name": "headwater",
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


# Passwords that came with an address, by how the place is shown: whoever opens what is shown means the same place.
_passwords: dict[str, str] = {}


class Address(NamedTuple):
    """What libpq connects by, the schema, and the same without a password, to be shown and opened again."""

    conninfo: str
    schema: str
    shown: str


def parse_address(text: str) -> Address:
    """The parts of an address."""
    parts = urlsplit(text)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = given.pop(_OURS, SCHEMA_DEFAULT)
    if not schema or "\0" in schema or len(schema.encode()) > NAME_BYTES_MAX:
        raise ConfigError(f"schema must be a name of 1 to {NAME_BYTES_MAX} bytes; got {schema!r:.80}")
    secret = given.pop("password", "")
    credentials, _, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    netloc = f"{user}@{host}" if user else host
    shown = urlunsplit((parts.scheme, netloc, parts.path, _query({**given, _OURS: schema}), ""))
    password = unquote(password) or secret or _passwords.get(shown, "")
    if password:
        _passwords[shown] = password
        given = {**given, "password": password}
    conninfo = urlunsplit((parts.scheme, netloc, parts.path, _query({**_defaults, **given}), ""))
    return Address(conninfo, schema, shown)


def _query(values: dict[str, str]) -> str:
    return urlencode(values, quote_via=quote)
