"""A bucket at S3, or at a server that speaks its protocol, through obstore. Its own repeats are off: the protocol above
decides what is sent again.

Credentials come from where people keep them: `AWS_*` variables, a profile of the shared files (`profile.py`), a web
identity or the role of the machine. `AWS_ENDPOINT_URL` names a compatible server; plain http goes to this machine only.
"""

import os
import textwrap
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from headwater.errors import ConfigError, StoreFailed, StoreFull
from headwater.stores.bucket.objects import Found, Refused, Unsure
from headwater.stores.bucket.profile import read_profile

if TYPE_CHECKING:
    from obstore.store import S3Config

TIMEOUT_SECONDS = 30.0
DELETES_AT_ONCE = 500
BRIEF_MOST = 300
# How servers say that a disk, or what was agreed on, is full.
_full = ("507 Insufficient Storage", "<Code>XMinioStorageFull<", "<Code>QuotaExceeded<")
_endpoints = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class S3Objects:
    """The objects of one bucket."""

    def __init__(
        self,
        bucket: str,
        environment: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        environment = os.environ if environment is None else environment
        endpoint = find_endpoint(environment)
        timeout = timedelta(seconds=timeout_seconds)
        self._bucket = bucket
        self._store = S3Store(
            bucket,
            config=_settings(environment, endpoint),
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": timeout},
            retry_config={"max_retries": 0, "retry_timeout": timeout},
        )

    async def get(self, key: str) -> Found | None:
        return await self._read(key, None)

    async def head(self, key: str, size: int) -> Found | None:
        return await self._read(key, (0, size))

    def peek(self, key: str, size: int) -> Found | None:
        try:
            found = obstore.get(self._store, key, options={"range": (0, size)})
            return Found(bytes(found.bytes()), found.meta["e_tag"] or "")
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise Unsure(f"reading {key}: {_brief(error)}") from error

    async def create(self, key: str, data: bytes) -> str:
        return await self._put(key, data, "create")

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        return await self._put(key, data, {"e_tag": tag})

    async def names(self, prefix: str) -> list[str]:
        folder, _, _ = prefix.rpartition("/")
        found: list[str] = []
        async with self._asking(f"listing {prefix}"):
            async for some in obstore.list(self._store, folder or None, chunk_size=1_000):
                found += [about["path"] for about in some if about["path"].startswith(prefix)]
        return sorted(found)

    async def delete(self, keys: Sequence[str]) -> None:
        async with self._asking("deleting"):
            for begin in range(0, len(keys), DELETES_AT_ONCE):
                await obstore.delete_async(self._store, list(keys[begin : begin + DELETES_AT_ONCE]))

    def close(self) -> None:
        """Its connections go with it."""

    async def _read(self, key: str, span: tuple[int, int] | None) -> Found | None:
        try:
            async with self._asking(f"reading {key}"):
                options: obstore.GetOptions = {} if span is None else {"range": span}
                found = await obstore.get_async(self._store, key, options=options)
                return Found(bytes(await found.bytes_async()), found.meta["e_tag"] or "")
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreFailed(f"there is no bucket {self._bucket}; make it first") from error
            return None
        except Refused as error:
            # Nothing was asked on a condition: a server that says so is not itself.
            raise Unsure(str(error)) from error

    async def _put(self, key: str, data: bytes, mode: "obstore.PutMode") -> str:
        try:
            async with self._asking(f"writing {key}"):
                done = await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
        except FileNotFoundError as error:
            # Of a bucket that is not there, or of an object that was to be replaced.
            raise Refused(f"{key}: {_brief(error)}") from error
        return done["e_tag"] or ""

    @asynccontextmanager
    async def _asking(self, doing: str) -> AsyncIterator[None]:
        """The library's errors as ours. A 409 is told as an object that is there, which it need not be."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise Refused(f"{doing}: {_brief(error)}") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            if _is_full(error):
                raise StoreFull(f"the bucket {self._bucket} is full: {doing}") from error
            raise StoreFailed(f"the bucket {self._bucket} does not allow {doing}: {_brief(error)}") from error
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            if _is_full(error):
                raise StoreFull(f"the bucket {self._bucket} is full: {doing}") from error
            raise Unsure(f"{doing}: {_brief(error)}") from error


def find_endpoint(environment: Mapping[str, str]) -> str:
    """The address of a compatible server, '' for Amazon's own."""
    endpoint = next((environment[name] for name in _endpoints if environment.get(name)), "")
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    if parts.scheme == "https" and parts.hostname:
        return endpoint
    if parts.scheme != "http" or not _is_here(parts.hostname or ""):
        raise ConfigError(f"AWS_ENDPOINT_URL must be https://… (http:// only on this machine); got {endpoint!r:.200}")
    return endpoint


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _settings(environment: Mapping[str, str], endpoint: str) -> "S3Config":
    """What the library is told; it looks for a role of the machine where there are no credentials."""
    found = {name.lower(): value for name, value in environment.items() if name in _TAKEN and value}
    if "aws_access_key_id" not in found and environment.get("AWS_PROFILE"):
        found.update(read_profile(environment))
    if endpoint:
        found["aws_endpoint"] = endpoint
        # Names of buckets are part of the path there: servers on an address have no names below it.
        found.setdefault("aws_virtual_hosted_style_request", "false")
    found.setdefault("aws_region", environment.get("AWS_DEFAULT_REGION") or "us-east-1")
    return cast("S3Config", found)


_TAKEN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_REQUEST_PAYER",
)


def _is_full(error: BaseException) -> bool:
    return any(code in str(error) for code in _full)


def _brief(error: BaseException) -> str:
    """One line: what the library says goes on with its own source."""
    return textwrap.shorten(str(error).partition("Debug source:")[0], BRIEF_MOST, placeholder=" …")
