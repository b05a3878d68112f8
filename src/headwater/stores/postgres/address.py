"""Where a store is: a database of a server, and a schema in it.

    postgresql://user@host:5432/name?schema=orders&replica=standby.example:5432

Everything but `schema` and `replica` is libpq's own: several hosts, `sslmode`, a password from `PGPASSWORD` or a
password file. The schema is made when it is not there; a database can hold several stores. A replica is a standby of
the server: who only reads, and can do with what is some moments old, reads there, and from the server while it is away.
"""

from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from headwater.errors import ConfigError

SCHEMA_DEFAULT = "headwater"
NAME_BYTES_MAX = 63
_OURS = "schema"
_REPLICA = "replica"
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
    # The same database by way of a standby, '' where none was named.
    replica: str = ""

    def for_reading(self) -> "Address":
        """Where to read what may be some moments old."""
        return self._replace(conninfo=self.replica) if self.replica else self


# Texts are told in this one, whatever the environment, the role or the address say.
_fixed = {"client_encoding": "UTF8"}


def parse_address(text: str) -> Address:
    """The parts of an address."""
    parts = urlsplit(text)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = given.pop(_OURS, SCHEMA_DEFAULT)
    if not schema or "\0" in schema or len(schema.encode()) > NAME_BYTES_MAX:
        raise ConfigError(f"schema must be a name of 1 to {NAME_BYTES_MAX} bytes; got {schema!r:.80}")
    replica = given.pop(_REPLICA, "")
    secret = given.pop("password", "")
    credentials, _, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    netloc = f"{user}@{host}" if user else host
    ours = {_REPLICA: replica, _OURS: schema} if replica else {_OURS: schema}
    shown = _url(parts, netloc, {**given, **ours})
    _check(_url(parts, netloc, given), shown)
    password = unquote(password) or secret or _passwords.get(shown, "")
    if password:
        _passwords[shown] = password
        given = {**given, "password": password}
    given |= _fixed
    conninfo = _url(parts, netloc, {**_defaults, **given})
    if not replica:
        return Address(conninfo, schema, shown)
    places = [*replica.split(","), *(given.get("host") or host).split(",")]
    hosts, ports = zip(*(_place(place, given.get("port", "")) for place in places), strict=True)
    there = {"host": ",".join(hosts), "port": ",".join(ports), "target_session_attrs": "prefer-standby"}
    return Address(conninfo, schema, shown, _url(parts, f"{user}@" if user else "", {**_defaults, **given, **there}))


def _url(parts: SplitResult, netloc: str, given: dict[str, str]) -> str:
    """The two slashes stay also where no server is named: without them it is no address to libpq."""
    query = _query(given)
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def _check(conninfo: str, shown: str) -> None:
    """Whether libpq can read it, asked before a password is put in: what it says has the address in it."""
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError as error:
        raise ConfigError(f"{shown} is no address of a database: {str(error).strip()}") from error


def _place(text: str, port: str) -> tuple[str, str]:
    """Host and port of one server; the folder of a socket has no colon that means one."""
    host, colon, own = ("", "", "") if text.startswith("/") else text.rpartition(":")
    return (host.strip("[]"), own) if colon and own.isdecimal() else (text.strip("[]"), port)


def _query(values: dict[str, str]) -> str:
    return urlencode(values, quote_via=quote)
