"""How a segment's body is kept: as it is, compressed, encrypted, or both (compressed first).

The codec is a bit mask in the segment's row, so that a plain segment can be read by any SQLite tool.
"""

import os
from hashlib import blake2b
from typing import TYPE_CHECKING

from headwater.errors import EncryptionKeyMissing, StoreDamaged
from headwater.model.compression import zstd
from headwater.model.queue import QueueOptions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PLAIN = 0
ZSTD = 1
AES_GCM = 2

_NONCE_BYTES = 12
_ZSTD_LEVEL = 1
_SEAL = b"key"

# What a body belongs to: a segment's partition and first offset, or another kind of place by its name.
Place = tuple[int, int] | bytes


class Codec:
    """Packs and unpacks segment bodies with one key."""

    def __init__(self, encryption_key: str = "") -> None:
        self._cipher = _make_cipher(encryption_key) if encryption_key else None
        # Another key than the cipher's: what one is used for says nothing of the other.
        self._name_key = blake2b(bytes.fromhex(encryption_key), person=b"headwater-names").digest()

    def pack(self, body: bytes, options: QueueOptions, bound_to: Place) -> tuple[int, bytes]:
        """The codec and the bytes to keep. `bound_to` names the place: a body moved elsewhere does not open."""
        codec = PLAIN
        if 0 < options.compress_bytes_min <= len(body):
            smaller = zstd.compress(body, _ZSTD_LEVEL)
            if len(smaller) < len(body):
                codec, body = ZSTD, smaller
        if options.encrypted:
            nonce = os.urandom(_NONCE_BYTES)
            body = nonce + self._need_cipher().encrypt(nonce, body, _spelled(bound_to))
            codec |= AES_GCM
        return codec, body

    def unpack(self, codec: int, body: bytes, bound_to: Place) -> bytes:
        """The body as it was packed."""
        if codec & AES_GCM:
            body = self._decrypt(body, bound_to)
        if codec & ZSTD:
            try:
                body = zstd.decompress(body)
            except zstd.ZstdError as error:
                raise StoreDamaged(f"a compressed segment does not open: {error}") from error
        return body

    def name(self, text: str, options: QueueOptions) -> str:
        """What a text of a queue is found by again: the text itself, or what nobody reads it from without the key."""
        if not options.encrypted or self._cipher is None:
            return text
        return blake2b(text.encode(), key=self._name_key, digest_size=32).hexdigest()

    def seal(self) -> bytes:
        """Something that only the same key opens."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + bytes(self._need_cipher().encrypt(nonce, b"", _SEAL))

    def opens(self, sealed: bytes) -> bool:
        """Whether this key made the seal."""
        try:
            self._decrypt(sealed, _SEAL)
        except EncryptionKeyMissing:
            self._need_cipher()
            return False
        return True

    def check(self, options: QueueOptions) -> None:
        """Raises when these options ask for a key that is not there."""
        if options.encrypted:
            self._need_cipher()

    def _decrypt(self, body: bytes, bound_to: Place) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self._need_cipher()
        try:
            opened: bytes = cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _spelled(bound_to))
        except InvalidTag as error:
            raise EncryptionKeyMissing("an encrypted segment does not open with this key") from error
        return opened

    def _need_cipher(self) -> "AESGCM":
        if self._cipher is None:
            raise EncryptionKeyMissing(
                "this queue is encrypted: set HEADWATER_ENCRYPTION_KEY to its 64 hexadecimal digits"
            )
        return self._cipher


def _spelled(place: Place) -> bytes:
    return place if isinstance(place, bytes) else b"%d/%d" % place


def _make_cipher(key: str) -> "AESGCM":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise EncryptionKeyMissing("encryption needs the extra: pip install 'headwater[encryption]'") from error
    return AESGCM(bytes.fromhex(key))
