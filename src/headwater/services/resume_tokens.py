"""Tokens by which a client goes on with its subscription after its connection was cut, on any server of the store.

A token says what was followed, by whom, and until when it is good; the client adds how far it got. It is signed with a
key that the store keeps, so that nobody makes one up. It is no permission: that is asked for anew.
"""

import base64
import binascii
import hmac
import logging
import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from headwater.clock import Timestamp
from headwater.errors import AlreadyReached, HeadwaterError, InvalidOption
from headwater.log.operations import Reach
from headwater.model.document import Condition
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.queues import Queues

log = logging.getLogger(__name__)

KEY_NAME = "headwater/resume-key"
GOOD_SECONDS = 24 * 3_600
SIGNATURE_BYTES = 16
TOKEN_LENGTH_MAX = 65_536

# How documents are told: as `doc.data` when nothing was said, flat as `document` or not at all, or as both.
IncludeData = bool | Literal["both"] | None


class Resumable(msgspec.Struct, frozen=True, array_like=True):
    """What a token is about."""

    database: str
    subject: str
    id: str | int
    collection: str
    filters: Sequence[Condition]
    filter: str
    include_data: IncludeData
    good_until: Timestamp
    # What rules and claims came to, in short: `Wanted.reading`.
    reading: str = ""
    priority: str = ""
    # Of which log: a store that is restored from a backup keeps the key that signs, and not its identity.
    identity: str = ""
    checksum: bool = False


_decoder = msgspec.json.Decoder(Resumable)


class ResumeTokens:
    """Makes and reads them."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._key = b""

    async def identity(self) -> str:
        """Which store it is."""
        return await self._queues.identity()

    def good_until(self) -> Timestamp:
        """How long a token that is made now is good."""
        return Timestamp(self._queues.clock.now() + GOOD_SECONDS * 1_000_000)

    async def make(self, about: Resumable) -> str:
        """A token, as clients hold it."""
        body = msgspec.json.encode(about)
        return base64.urlsafe_b64encode(await self._signature(body) + body).decode().rstrip("=")

    async def read(self, token: str) -> Resumable:
        """What a token is about; raises when it is none of this store's, or not good any more."""
        try:
            if len(token) > TOKEN_LENGTH_MAX:
                raise ValueError("too long")
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            signature, body = raw[:SIGNATURE_BYTES], raw[SIGNATURE_BYTES:]
            if not hmac.compare_digest(signature, await self._signature(body)):
                raise ValueError("not signed here")
            about = _decoder.decode(body)
        except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
            raise InvalidOption("this is no resume token of this store; subscribe anew") from error
        if about.good_until < self._queues.clock.now():
            raise InvalidOption("this resume token is too old; subscribe anew")
        return about

    async def prepare(self) -> None:
        """Have the key before anybody asks: so a backup has it that is made before the first subscription, and tokens
        of later are told from forged ones when it is put back. Where the store takes nothing now, it is made later."""
        try:
            await self._have_key()
        except HeadwaterError as error:
            log.warning("the key for resume tokens could not be had yet: %s", error)

    async def _have_key(self) -> bytes:
        self._key = self._key or await self._kept_key()
        return self._key

    async def _signature(self, body: bytes) -> bytes:
        return hmac.digest(await self._have_key(), body, sha256)[:SIGNATURE_BYTES]

    async def _kept_key(self) -> bytes:
        """The key of the store, made by whoever needs it first."""
        new = secrets.token_hex(32)
        try:
            await self._queues.run(Reach(database=DATABASE_DEFAULT, name=KEY_NAME, number=1, note=new))
        except AlreadyReached as known:
            return bytes.fromhex(known.note)
        return bytes.fromhex(new)
