"""The keys that JSON web tokens are checked with: a secret, or the public keys in a file, read again when it changes.

Each key is for one algorithm, by what the key is and not by what a token says: a public key can never be used as the
secret of an HMAC. A file that cannot be read any more leaves the keys as they were, and is told in the log: it may be
half written. One that can be read and has no key withdraws them all.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from headwater.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
FILE_BYTES_MAX = 1_048_576
KEYS_MAX = 100
SECRET_BYTES_MIN = 32
RSA_BITS_MIN = 2_048


class Algorithm(StrEnum):
    """How a token may be signed."""

    HS256 = "HS256"
    RS256 = "RS256"
    EDDSA = "EdDSA"


class Key(NamedTuple):
    """A key with its name, '' when it has none and is for tokens of any name."""

    name: str
    algorithm: Algorithm
    key: Any

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.algorithm})"


class Keyring:
    """All keys of a server."""

    def __init__(self, secret: bytes = b"", path: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fixed = [Key("", Algorithm.HS256, check_secret(secret))] if secret else []
        self._path = path
        self._monotonic = monotonic
        self._look_at = monotonic() + LOOK_SECONDS
        self._stamp = _stamp(path) if path else None
        self._keys = [*self._fixed, *(_first_keys(path) if path else [])]
        self._version = 0

    def version(self) -> int:
        """Changes when the keys did; looks at the file, but not more often than once in `LOOK_SECONDS`."""
        if self._path and self._monotonic() >= self._look_at:
            self._look_at = self._monotonic() + LOOK_SECONDS
            self._look()
        return self._version

    def find(self, algorithm: Algorithm, name: str | None) -> list[Key]:
        """The keys that a token with this algorithm, and this name of a key or none, may be signed with."""
        fitting = (key for key in self._keys if key.algorithm is algorithm)
        return [key for key in fitting if name is None or key.name in ("", name)]

    def algorithms(self) -> set[Algorithm]:
        """Those for which there is a key."""
        return {key.algorithm for key in self._keys}

    def _look(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._keys = [*self._fixed, *read_keys(self._path)]
        except ConfigError as error:
            log.error("the keys stay as they were: %s", error)
            return
        self._version += 1
        count = len(self._keys) - len(self._fixed)
        log.log(logging.INFO if count else logging.WARNING, "read %d keys from %s", count, self._path)


def check_secret(secret: bytes) -> bytes:
    """The secret of an HMAC, if it is long enough and is not somebody's public key."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"jwt_secret must have at least {SECRET_BYTES_MIN} bytes; it has {len(secret)}")
    if secret.lstrip().startswith((b"-----BEGIN", b"ssh-")):
        raise ConfigError("jwt_secret is a key of another kind; a public key belongs into jwt_keys_file")
    return secret


def _first_keys(path: str) -> list[Key]:
    """The keys that a server starts with: one that could let nobody in is a mistake."""
    keys = read_keys(path)
    if not keys:
        raise ConfigError(f"{path} has no key for {', '.join(Algorithm)}")
    return keys


def read_keys(path: str) -> list[Key]:
    """The keys in a file: a JWKS, which may have none for us, or one public key as PEM."""
    text = read_bounded("jwt_keys_file", path)
    keys = list(_jwks(path, text) if text.lstrip().startswith(b"{") else _pem(path, text))
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"{path} has {len(keys)} keys; {KEYS_MAX} are allowed")
    return keys


def read_bounded(setting: str, path: str) -> bytes:
    """The content of a file that a setting names."""
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error.strerror}") from error
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{setting}: {path} has more than {FILE_BYTES_MAX:,} bytes")
    return text


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"jwt_keys_file: {path} cannot be read: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


# ── PEM ──


def _pem(path: str, text: bytes) -> Iterable[Key]:
    need_cryptography()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in text:
        raise ConfigError(f"{path} holds a private key; this server needs only the public one")
    try:
        key = load_pem_public_key(text)
    except ValueError:
        raise ConfigError(f"{path} holds no public key as PEM and no JWKS") from None
    return [_checked(path, "", key)]


def _checked(path: str, name: str, key: Any) -> Key:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, Ed25519PublicKey):
        return Key(name, Algorithm.EDDSA, key)
    if not isinstance(key, RSAPublicKey):
        raise ConfigError(f"{path} holds a key that is neither RSA nor Ed25519")
    if key.key_size < RSA_BITS_MIN:
        raise ConfigError(f"{path} holds an RSA key of {key.key_size} bits; {RSA_BITS_MIN} are needed")
    return Key(name, Algorithm.RS256, key)


# ── JWKS ──


class _Jwk(msgspec.Struct, frozen=True):
    """The public members of a key; private ones are not read."""

    kty: str
    kid: str = ""
    use: str = "sig"
    alg: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    k: str = ""


class _Jwks(msgspec.Struct, frozen=True):
    keys: list[_Jwk]


def _jwks(path: str, text: bytes) -> Iterable[Key]:
    try:
        found = msgspec.json.decode(text, type=_Jwks).keys
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no JWKS: {error}") from None
    for jwk in found:
        algorithm = _algorithm(jwk)
        if algorithm is None:
            log.info("%s: the key %r is for something else and is left out", path, jwk.kid)
        else:
            yield _from_jwk(path, jwk, algorithm)


def _algorithm(jwk: _Jwk) -> Algorithm | None:
    """What a key is for; None when that is nothing here."""
    kinds = {("RSA", ""): Algorithm.RS256, ("OKP", "Ed25519"): Algorithm.EDDSA, ("oct", ""): Algorithm.HS256}
    algorithm = kinds.get((jwk.kty, jwk.crv))
    return algorithm if jwk.use == "sig" and jwk.alg in ("", algorithm) else None


def _from_jwk(path: str, jwk: _Jwk, algorithm: Algorithm) -> Key:
    from jwt import PyJWTError
    from jwt.algorithms import get_default_algorithms

    public = {"kty": jwk.kty, "crv": jwk.crv, "n": jwk.n, "e": jwk.e, "x": jwk.x, "k": jwk.k}
    if algorithm is not Algorithm.HS256:
        need_cryptography()
    try:
        key: Any = get_default_algorithms()[algorithm].from_jwk({name: text for name, text in public.items() if text})
    except (PyJWTError, ValueError):
        raise ConfigError(f"{path}: the key {jwk.kid!r} cannot be read") from None
    if algorithm is Algorithm.HS256:
        return Key(jwk.kid, algorithm, check_secret(key))
    return _checked(path, jwk.kid, key)


def need_cryptography() -> None:
    """Raises when public keys cannot be used here."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError("RS256 and EdDSA need one more package: pip install 'headwater[jwt]'") from None
