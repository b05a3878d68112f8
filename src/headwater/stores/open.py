"""Choosing a store by its address, and a reader of its log by the same address.

| address | store | reader of its log |
|---|---|---|
| a path, `sqlite:///path` | the file | the file, for processes on the same machine |
| `https://host`, `http://127.0.0.1:6632` | opened by its server | through the server, from any machine |

A kind of store is one more line in the tables below; whoever opens by address learns nothing of it.
"""

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from headwater.client.access import Access
from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.stores.contract import Store
from headwater.stores.log_reader import LogReader
from headwater.stores.sqlite.reading import SqliteLogReader
from headwater.stores.sqlite.store import SqliteStore

FILES = ("", "sqlite")
SERVERS = ("http", "https")


def open_store(
    address: str | os.PathLike[str], config: Config, clock: Clock, *, adopt: bool = False, create: bool = True
) -> Store:
    """The store at this address, not yet opened."""
    if scheme_of(address) in SERVERS:
        raise ConfigError(
            f"{_shown(address)} is a server, which has its store open: headwater.connect(url) speaks with it"
        )
    return SqliteStore(_path_of(address), config, clock=clock, adopt=adopt, create=create)


def open_reader(address: str | os.PathLike[str], config: Config, access: Access | None = None) -> LogReader:
    """The log at this address for reading only, not yet opened. `access` is for those that ask who it is."""
    scheme = scheme_of(address)
    make = _readers.get(scheme)
    if make is None:
        raise _unknown(scheme)
    return make(address, config, access or Access())


def is_server(address: str | os.PathLike[str]) -> bool:
    """Whether a store at this address is reached through a server."""
    return scheme_of(address) in SERVERS


def scheme_of(address: str | os.PathLike[str]) -> str:
    """What kind of address it is, '' for a path."""
    known = isinstance(address, str | os.PathLike)
    if not known or "\x00" in str(address):
        raise ConfigError(f"store must be a path, sqlite:///path or a server's URL; got {address!r:.80}")
    text = os.fspath(address)
    return urlsplit(text).scheme if "://" in text else ""


def _read_file(address: str | os.PathLike[str], config: Config, access: Access) -> LogReader:
    if not access.is_default():
        raise ConfigError("token, tokenFile, caFile and retrySeconds are for a store at https://; a file asks for none")
    return SqliteLogReader(_path_of(address), config)


def _read_through_server(address: str | os.PathLike[str], config: Config, access: Access) -> LogReader:
    # Here, because who reads a file need not load what speaks HTTP.
    from headwater.client.log_reader import RemoteLogReader

    return RemoteLogReader(os.fspath(address), access)


_Make = Callable[[str | os.PathLike[str], Config, Access], LogReader]
_readers: dict[str, _Make] = {
    **dict.fromkeys(FILES, _read_file),
    **dict.fromkeys(SERVERS, _read_through_server),
}


def _path_of(address: str | os.PathLike[str]) -> str:
    scheme = scheme_of(address)
    if scheme not in FILES:
        raise _unknown(scheme)
    text = os.fspath(address)
    path = text.removeprefix("sqlite:///") if scheme else text
    if not path or path == ":memory:":
        raise ConfigError(
            f"store must be the path of a file: a log that is lost with the process is none; got {text!r}"
        )
    return path


def _unknown(scheme: str) -> ConfigError:
    return ConfigError(
        f"store must be a path, sqlite:///path or a server's URL; this version has no store for {scheme}://"
    )


def _shown(address: str | os.PathLike[str]) -> str:
    """An address without what may be a secret in it."""
    parts = urlsplit(os.fspath(address))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]
