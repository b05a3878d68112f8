"""Choosing a store by its address: a path or `sqlite:///path` is a SQLite file."""

import os
from urllib.parse import urlsplit

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.stores.contract import Store
from headwater.stores.log_reader import LogReader
from headwater.stores.sqlite.reading import SqliteLogReader
from headwater.stores.sqlite.store import SqliteStore


def open_store(
    address: str | os.PathLike[str], config: Config, clock: Clock, *, adopt: bool = False, create: bool = True
) -> Store:
    """The store at this address, not yet opened."""
    return SqliteStore(_path_of(address), config, clock=clock, adopt=adopt, create=create)


def open_reader(address: str | os.PathLike[str], config: Config) -> LogReader:
    """The log at this address for reading only, not yet opened."""
    return SqliteLogReader(_path_of(address), config)


def _path_of(address: str | os.PathLike[str]) -> str:
    known = isinstance(address, str | os.PathLike)
    if not known or "\x00" in str(address):
        raise ConfigError(f"store must be a path or sqlite:///path; got {address!r:.80}")
    address = os.fspath(address)
    scheme = urlsplit(address).scheme if "://" in address else ""
    if scheme not in ("", "sqlite"):
        raise ConfigError(f"store must be a path or sqlite:///path; this version has no store for {scheme}://")
    path = address.removeprefix("sqlite:///") if scheme else address
    if not path or path == ":memory:":
        raise ConfigError(
            f"store must be the path of a file: a log that is lost with the process is none; got {address!r}"
        )
    return path
