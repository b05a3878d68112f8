"""Somebody who issues JSON web tokens: keys, and tokens signed by the book or against it."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from headwater.clock import SECOND
from headwater.doors.access.json_web_tokens import JsonWebTokenVerifier
from headwater.doors.access.keys import Algorithm, Keyring
from headwater.model.json_web_token import Expected
from tests.contracts.clock import BEGINNING

NOW = BEGINNING // SECOND
SECRET = b"a secret that only the issuer and the server have"
EXPECTED = Expected(audience=("headwater",), issuer="https://issuer.example")

Json = dict[str, Any]
Sign = Callable[[bytes], bytes]


@cache
def rsa_key(name: str) -> RSAPrivateKey:
    """A key of this name; the same for the whole run, because making one takes long."""
    return generate_private_key(65_537, 2_048)


@cache
def ed_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def rsa_public_pem(name: str = "rsa") -> bytes:
    return rsa_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def ed_public_raw(name: str = "ed") -> bytes:
    return ed_key(name).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def public_jwk(name: str, kid: str | None = None) -> Json:
    """The public half of a key, as a JWKS has it."""
    if name.startswith("rsa"):
        jwk: Json = RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True)
    else:
        jwk = OKPAlgorithm.to_jwk(ed_key(name).public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, "kid": kid or name, "use": "sig"}


def write_jwks(path: Path, *jwks: Json) -> str:
    path.write_text(json.dumps({"keys": jwks}))
    return str(path)


# ── signing ──


def by_secret(secret: bytes = SECRET) -> Sign:
    return lambda text: hmac.new(secret, text, hashlib.sha256).digest()


def by_rsa(name: str = "rsa") -> Sign:
    return lambda text: rsa_key(name).sign(text, padding.PKCS1v15(), hashes.SHA256())


def by_ed(name: str = "ed") -> Sign:
    return lambda text: ed_key(name).sign(text)


def claims(**changes: Any) -> Json:
    """Claims that hold; a change to None leaves one out."""
    good = {
        "iss": EXPECTED.issuer,
        "aud": "headwater",
        "sub": "alice",
        "role": "read-write",
        "iat": NOW,
        "exp": NOW + 600,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def part(value: Any) -> str:
    """One part of a token: a value as JSON, or bytes as they are."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header: Any, payload: Any, sign: Sign) -> str:
    """A token of exactly these parts, signed."""
    text = f"{part(header)}.{part(payload)}"
    return f"{text}.{part(sign(text.encode()))}"


def hs256(**changes: Any) -> str:
    return token({"alg": "HS256", "typ": "JWT"}, claims(**changes), by_secret())


def rs256(kid: str | None = "rsa", key: str = "rsa", **changes: Any) -> str:
    named = {} if kid is None else {"kid": kid}
    return token({"alg": "RS256", "typ": "JWT", **named}, claims(**changes), by_rsa(key))


def eddsa(kid: str = "ed", key: str = "ed", **changes: Any) -> str:
    return token({"alg": "EdDSA", "kid": kid}, claims(**changes), by_ed(key))


# ── verifying ──


def verifier(folder: Path, *algorithms: Algorithm, expected: Expected = EXPECTED) -> JsonWebTokenVerifier:
    """A server's verifier that takes these algorithms, with keys for all of them."""
    path = write_jwks(folder / "keys.json", public_jwk("rsa"), public_jwk("ed"))
    return JsonWebTokenVerifier(Keyring(SECRET, path), algorithms, expected)
