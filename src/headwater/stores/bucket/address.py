"""Where a store in a bucket is, and how it is kept there.

    s3://bucket/folder/name.sqlite?lease_seconds=15
    file:///folder/name.sqlite

Settings stand behind the address, because everybody who opens the store must agree on them.
"""

import os
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headwater.config import MIB, convert_settings
from headwater.errors import ConfigError, StoreForeign
from headwater.stores.bucket_traces import LOG

S3 = "s3"
FOLDER = "file"
BYTES_MOST = 4_096 * MIB
# What is kept free for what drops records, and the least that a store may grow to beside it.
RESERVE_BYTES = 4 * MIB
BYTES_LEAST = 2 * RESERVE_BYTES
GAP_MS_MOST = 60_000


class Ship(StrEnum):
    """What a commit sends: the pages that it changed, or the whole file."""

    CHAIN = "chain"
    IMAGE = "image"


def kept_otherwise(name: str, ship: Ship) -> StoreForeign:
    """What is told to whoever asks for the other way of keeping a store."""
    how = "a chain" if ship is Ship.CHAIN else "whole images"
    return StoreForeign(f"{name} is kept as {how}: open it with ship={ship}, or without ship")


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set for a store in a bucket."""

    ship: Ship | None = None
    """`chain` sends what a commit changed, `image` the whole file each time; unless said, as the store is kept already,
    and a new one as a chain."""
    lease_seconds: float = 15.0
    """How long a broker that is not heard of keeps the store; 0: whoever wants to write takes it over at once."""
    wait_seconds: float = 60.0
    """How long to wait for a broker that holds the store, before `store_busy` is told."""
    bytes_max: int = 512 * MIB
    """The largest the store may grow; it is in memory twice, and once more while a base is sent. Pushes get
    `store_full` 4 MiB before that: those are kept for what drops records."""
    gap_ms: float = 0.0
    """The least time between two PUTs."""
    advertise: str = ""
    """The address under which this broker's server is reached, told to those who find the store held."""
    put_price: float = 5.0
    """What a million PUTs or LISTs cost, for `headwater doctor` and the metrics."""
    get_price: float = 0.4
    """What a million GETs cost."""


class Place(NamedTuple):
    """A bucket (or the folder that stands for one), the key of the store in it, and what is set."""

    scheme: str
    bucket: str
    key: str
    settings: BucketSettings
    query: str = ""

    @property
    def shown(self) -> str:
        """The address without settings."""
        return f"{self.scheme}://{self.bucket.rstrip('/')}/{self.key}"

    @property
    def logs_around(self) -> tuple[str, ...]:
        """Where the log of another store would lie that this one lies in, by its name alone."""
        if self.scheme == FOLDER:
            return ("",) if self.bucket.endswith(LOG) else ()
        folders = self.key.split("/")[:-1]
        return tuple("/".join(folders[: at + 1]) + "/" for at, name in enumerate(folders) if name.endswith(LOG))

    @property
    def address(self) -> str:
        """The address: whoever opens it opens it on the same terms."""
        return f"{self.shown}?{self.query}" if self.query else self.shown


def parse_place(address: str) -> Place:
    """The parts of an address; ConfigError names what is wrong with it."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.scheme == FOLDER:
        # One name for a store, however many links lead there: its log lies beside that.
        folder, _, key = (os.path.realpath(path) if os.path.islink(path) else path).rpartition("/")
        bucket, whole = folder or "/", not parts.netloc
    else:
        bucket, key = parts.netloc, path.removeprefix("/")
        whole = bool(bucket) and "@" not in bucket and "//" not in key
    # A bucket has no folders that could be gone up.
    has_dots = parts.scheme != FOLDER and not {".", ".."}.isdisjoint(key.split("/"))
    if not whole or not key or key.endswith("/") or has_dots or parts.fragment:
        raise ConfigError(f"store must be s3://bucket/name.sqlite or file:///folder/name.sqlite; got {address!r:.200}")
    return Place(parts.scheme, bucket, key, _settings(parts.query), parts.query)


def _settings(query: str) -> BucketSettings:
    given = dict(parse_qsl(query, keep_blank_values=True))
    names = BucketSettings.__struct_fields__
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ConfigError(f"no such setting of a bucket: {', '.join(unknown)}; there are {', '.join(names)}")
    if given.get("ship") not in (None, *Ship):
        raise ConfigError(f"ship must be chain or image; got {given['ship']!r:.80}")
    settings = convert_settings(given, BucketSettings)
    for name in ("lease_seconds", "wait_seconds", "gap_ms", "put_price", "get_price"):
        value = getattr(settings, name)
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{name} must be 0 or more; got {value!r}")
    if settings.gap_ms > GAP_MS_MOST:
        raise ConfigError(f"gap_ms must be 0 to {GAP_MS_MOST:,}: every answer waits for it; got {settings.gap_ms!r}")
    if not BYTES_LEAST <= settings.bytes_max <= BYTES_MOST:
        raise ConfigError(
            f"bytes_max must be {BYTES_LEAST:,} to {BYTES_MOST:,}, of which {RESERVE_BYTES:,} are kept for what drops "
            f"records; got {settings.bytes_max!r}"
        )
    return settings
