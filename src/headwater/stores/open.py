"""Choosing a store by its address, and a reader of its log by the same address.

| address | store | reader of its log |
|---|---|---|
| a path, `sqlite:///path` | the file | the file, for processes on the same machine |
| `postgresql://host/database?schema=name` | a schema of the server's database | the same, from any machine |
| `s3://bucket/name.sqlite`, `file:///folder/…` | objects of a bucket, or of a folder instead | a copy of what landed |
| `https://host`, `http://127.0.0.1:6632` | opened by its server | through the server, from any machine |

A kind of store is one more line in `KINDS`; whoever opens by address learns nothing of it.
"""

import os
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from headwater.client.access import Access
from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.stores.contract import Store
from headwater.stores.log_reader import LogReader
from headwater.stores.sqlite.reading import SqliteLogReader
from headwater.stores.sqlite.store import open_file
from headwater.stores.transfer import Transfer

Address = str | os.PathLike[str]


class Terms(NamedTuple):
    """On which terms a place is opened: `adopt` a file with tables of others, `create` what is not there."""

    adopt: bool
    create: bool


class Kind(NamedTuple):
    """What one scheme of addresses means: how its store is opened, and how its log is read."""

    store: Callable[[Address, Config, Clock, Terms], Store]
    reader: Callable[[Address, Config, Access], LogReader]
    # How its tables are moved as a whole, where they can be.
    transfer: Callable[[Address, Config], Transfer] | None = None


def open_store(address: Address, config: Config, clock: Clock, *, adopt: bool = False, create: bool = True) -> Store:
    """The store at this address, not yet opened."""
    return _kind_of(address).store(address, config, clock, Terms(adopt, create))


def open_reader(address: Address, config: Config, access: Access | None = None) -> LogReader:
    """The log at this address for reading only, not yet opened. `access` is for those that ask who it is."""
    return _kind_of(address).reader(address, config, access or Access())


def open_transfer(address: Address, config: Config) -> Transfer:
    """What holds the tables at this address, to move them as a whole."""
    transfer = _kind_of(address).transfer
    if transfer is None:
        raise ConfigError(f"a store at {scheme_of(address)}:// cannot be moved as a whole")
    return transfer(address, config)


def is_server(address: Address) -> bool:
    """Whether a store at this address is reached through a server."""
    return scheme_of(address) in SERVERS


def scheme_of(address: Address) -> str:
    """What kind of address it is, '' for a path."""
    known = isinstance(address, str | os.PathLike)
    if not known or "\x00" in str(address):
        raise ConfigError(
            f"store must be a path, sqlite:///path, postgresql://…, s3://… or a server's URL; got {address!r:.80}"
        )
    text = os.fspath(address)
    scheme, colon, rest = text.partition(":")
    if isinstance(address, str) and scheme and colon and scheme in KINDS and not rest.startswith("//"):
        raise ConfigError(f"store must be {scheme}://…, with two slashes, or ./{scheme}:… for a file of that name")
    try:
        return urlsplit(text).scheme if "://" in text else ""
    except ValueError as error:
        # The address is not shown: without its parts nobody can tell where a password stands in it.
        raise ConfigError(f"store must be an address; this one cannot be read: {error}") from error


def _kind_of(address: Address) -> Kind:
    scheme = scheme_of(address)
    kind = KINDS.get(scheme)
    if kind is None:
        raise ConfigError(
            "store must be a path, sqlite:///path, postgresql://…, s3://… or a server's URL; "
            f"this version has no store for {scheme}://"
        )
    return kind


def _open_file(address: Address, config: Config, clock: Clock, terms: Terms) -> Store:
    return open_file(_path_of(address), config, clock, adopt=terms.adopt, create=terms.create)


def _move_file(address: Address, config: Config) -> Transfer:
    from headwater.stores.sqlite.transfer import SqliteTransfer

    # Whole: the old store tells for ever where the new one is, to people in any folder.
    return SqliteTransfer(os.path.abspath(_path_of(address)), config.lock_wait_seconds)


def _read_file(address: Address, config: Config, access: Access) -> LogReader:
    if not access.is_default():
        raise ConfigError("token, tokenFile, caFile and retrySeconds are for a store at https://; a file asks for none")
    return SqliteLogReader(_path_of(address), config)


def _refuse_server(address: Address, config: Config, clock: Clock, terms: Terms) -> Store:
    raise ConfigError(f"{shown(address)} is a server, which has its store open: headwater.connect(url) speaks with it")


def _read_through_server(address: Address, config: Config, access: Access) -> LogReader:
    # Here, because who reads a file need not load what speaks HTTP.
    from headwater.client.log_reader import RemoteLogReader

    return RemoteLogReader(os.fspath(address), access)


def _open_database(address: Address, config: Config, clock: Clock, terms: Terms) -> Store:
    try:
        from headwater.stores.postgres.store import PostgresStore
    except ImportError as error:
        raise _without_driver(error) from error
    return PostgresStore(os.fspath(address), config, clock=clock, adopt=terms.adopt, create=terms.create)


def _move_database(address: Address, config: Config) -> Transfer:
    try:
        from headwater.stores.postgres.address import parse_address
        from headwater.stores.postgres.transfer import PostgresTransfer
    except ImportError as error:
        raise _without_driver(error) from error
    return PostgresTransfer(parse_address(os.fspath(address)), config.lock_wait_seconds)


def _read_database(address: Address, config: Config, access: Access) -> LogReader:
    if not access.is_default():
        raise ConfigError("token, tokenFile, caFile and retrySeconds are for a store at https://, not for a database")
    try:
        from headwater.stores.postgres.reading import PostgresLogReader
    except ImportError as error:
        raise _without_driver(error) from error
    return PostgresLogReader(os.fspath(address), config)


def _open_bucket(address: Address, config: Config, clock: Clock, terms: Terms) -> Store:
    from headwater.stores.bucket.store import BucketStore

    return BucketStore(os.fspath(address), config, clock=clock, create=terms.create)


def _move_bucket(address: Address, config: Config) -> Transfer:
    from headwater.stores.bucket.transfer import BucketTransfer

    return BucketTransfer(os.fspath(address), config)


def _read_bucket(address: Address, config: Config, access: Access) -> LogReader:
    if not access.is_default():
        raise ConfigError("token, tokenFile, caFile and retrySeconds are for a store at https://, not for a bucket")
    from headwater.stores.bucket.reading import BucketLogReader

    return BucketLogReader(os.fspath(address), config)


def _without_driver(error: ImportError) -> ConfigError:
    """Only who has such a store needs its driver."""
    return ConfigError(f"a store at postgresql:// needs psycopg: pip install 'headwater[postgres]' ({error})")


SERVERS = ("http", "https")
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("", "sqlite"), Kind(_open_file, _read_file, _move_file)),
    **dict.fromkeys(("postgresql", "postgres"), Kind(_open_database, _read_database, _move_database)),
    **dict.fromkeys(("s3", "file"), Kind(_open_bucket, _read_bucket, _move_bucket)),
    **dict.fromkeys(SERVERS, Kind(_refuse_server, _read_through_server)),
}


def _path_of(address: Address) -> str:
    text = os.fspath(address)
    path = text.removeprefix("sqlite:///") if scheme_of(address) else text
    if not path or path == ":memory:":
        raise ConfigError(
            f"store must be the path of a file: a log that is lost with the process is none; got {text!r}"
        )
    # Whatever lies beside the file lies beside the one that is meant, however many links lead there.
    # And `..` behind a link to a folder is the folder above the one that it leads to, as for every other program.
    return os.path.realpath(path) if os.path.islink(path) or os.pardir in path.split(os.sep) else path


def shown(address: Address) -> str:
    """An address for people to read: without a password, wherever that stands in it."""
    text = os.fspath(address)
    if scheme_of(address) in ("", "sqlite", "file"):
        return text
    parts = urlsplit(text)
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(one for one in parts.query.split("&") if not _is_secret(one.partition("=")[0]))
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query))


def has_password(address: Address) -> bool:
    """Whether a password stands in an address, so that it may not be kept where others read it."""
    text = os.fspath(address)
    if scheme_of(address) in ("", "sqlite", "file"):
        return False
    parts = urlsplit(text)
    names = (one.partition("=")[0] for one in parts.query.split("&"))
    return ":" in parts.netloc.rpartition("@")[0] or any(_names(name, _PASSWORDS) for name in names)


def _is_secret(name: str) -> bool:
    # A key may be the path of a file, which is needed and tells nothing; who only reads the address does without it.
    return _names(name, (*_PASSWORDS, "key"))


def _names(name: str, words: tuple[str, ...]) -> bool:
    return any(word in unquote(name).lower() for word in words)


_PASSWORDS = ("password", "secret", "token")
