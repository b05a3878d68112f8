"""What a good JSON web token brings, and the keys that it is checked with."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from headwater.clock import SECOND
from headwater.doors.access.json_web_tokens import JsonWebTokenVerifier
from headwater.doors.access.keys import LOOK_SECONDS, Algorithm, Keyring
from headwater.errors import ConfigError, Unauthenticated
from headwater.model.json_web_token import Expected
from headwater.model.principal import Principal, Scope
from tests.contracts.clock import BEGINNING, FakeClock
from tests.doors.access.issuer import (
    NOW,
    SECRET,
    by_ed,
    by_rsa,
    by_secret,
    claims,
    eddsa,
    hs256,
    part,
    public_jwk,
    rs256,
    rsa_key,
    rsa_public_pem,
    token,
    verifier,
    write_jwks,
)


class Hand:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def principal(folder: Path, text: str, **expected: Any) -> Principal:
    wanted = Expected(audience=("headwater",), issuer="https://issuer.example", **expected)
    found = (await verifier(folder, *Algorithm, expected=wanted).verify(text, BEGINNING)).principal
    return msgspec.structs.replace(found, claims="")


# ── who it is ──


async def test_what_else_a_token_claims_is_known_of_who_shows_it(tmp_path: Path) -> None:
    text = rs256(tenant={"plan": "gold"}, rooms=["r1"], scopes="all", database="d")
    shown = (await verifier(tmp_path, *Algorithm).verify(text, BEGINNING)).principal.known_claims()
    assert (shown["tenant"], shown["rooms"]) == ({"plan": "gold"}, ["r1"])
    # What is ours to say is said by us.
    assert (shown["sub"], shown["scopes"]) == ("alice", ["consume", "metrics", "publish", "subscribe"])


async def test_a_token_says_who_it_is_and_what_they_may_do(tmp_path: Path) -> None:
    assert await principal(tmp_path, rs256(database="tenant", queues=["orders.*", "bills"])) == Principal(
        database="tenant",
        subject="alice",
        scopes=frozenset({Scope.PUBLISH, Scope.CONSUME, Scope.SUBSCRIBE, Scope.METRICS}),
        queues=("orders.*", "bills"),
    )


async def test_without_claims_of_ours_it_is_somebody_of_main_who_may_do_nothing(tmp_path: Path) -> None:
    assert await principal(tmp_path, hs256(sub=None, role=None)) == Principal(
        database="main", subject="", scopes=frozenset(), queues=("*",)
    )


@pytest.mark.parametrize(
    "roles",
    [{"role": "admin"}, {"roles": ["admin"]}, {"roles": "viewer admin"}, {"role": "x", "roles": ["y", "admin"]}],
)
async def test_roles_stand_in_one_claim_or_the_other(roles: dict[str, Any], tmp_path: Path) -> None:
    found = await principal(tmp_path, hs256(**{"role": None, **roles}))
    assert found.scopes == {Scope.ADMIN}


async def test_claims_can_have_other_names_and_lie_deeper(tmp_path: Path) -> None:
    text = hs256(
        role="admin",
        realm_access={"roles": ["read-only"]},
        tenant="acme",
        **{"https://example.org/queues": "a b*"},
    )
    found = await principal(
        tmp_path,
        text,
        role_claims=("realm_access.roles", "nothing.here"),
        database_claim="tenant",
        queues_claim="https://example.org/queues",
    )
    assert found == Principal(
        database="acme",
        subject="alice",
        scopes=frozenset({Scope.SUBSCRIBE, Scope.METRICS}),
        queues=("a", "b*"),
    )


async def test_no_queues_at_all_is_no_queue_and_not_every_queue(tmp_path: Path) -> None:
    assert not (await principal(tmp_path, hs256(queues=[]))).may_use("orders")


@pytest.mark.parametrize("claim", ["queues", "database"])
async def test_a_claim_that_is_null_opens_nothing(tmp_path: Path, claim: str) -> None:
    """A provider that has nothing to say of it must not open every queue, or the first database, by that."""
    with pytest.raises(Unauthenticated):
        await principal(tmp_path, token({"alg": "HS256", "typ": "JWT"}, {**claims(), claim: None}, by_secret()))


# ── time and audience ──


async def test_a_token_is_good_until_its_time_and_the_leeway_are_over(tmp_path: Path) -> None:
    clock = FakeClock()
    door = verifier(tmp_path, Algorithm.HS256)
    text = hs256(exp=NOW + 60, nbf=NOW + 5, iat=NOW + 5)
    verified = await door.verify(text, clock.now())
    assert verified.until == (NOW + 70) * SECOND
    clock.advance(69)
    await door.verify(text, clock.now())
    clock.advance(1)
    with pytest.raises(Unauthenticated, match="expired"):
        await door.verify(text, clock.now())


async def test_one_of_several_audiences_is_enough(tmp_path: Path) -> None:
    assert (await principal(tmp_path, hs256(aud=["elsewhere", "headwater"]))).subject == "alice"


async def test_where_no_audience_is_expected_a_token_for_one_is_still_not_ours(tmp_path: Path) -> None:
    door = verifier(tmp_path, Algorithm.HS256, expected=Expected())
    assert (await door.verify(hs256(aud=None, iss=None), BEGINNING)).principal.subject == "alice"
    assert (await door.verify(hs256(aud=None, iss="anybody"), BEGINNING)).principal.subject == "alice"
    with pytest.raises(Unauthenticated, match="audience"):
        await door.verify(hs256(aud="elsewhere"), BEGINNING)


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
async def test_types_of_access_tokens_are_taken(typ: str, tmp_path: Path) -> None:
    text = token({"alg": "HS256", "typ": typ}, claims(), by_secret())
    assert (await principal(tmp_path, text)).subject == "alice"


# ── keys ──


async def test_a_token_without_a_key_name_may_be_signed_with_any_key_of_its_algorithm(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "keys.json", public_jwk("rsa"), public_jwk("rsa of a friend"), public_jwk("ed"))
    door = JsonWebTokenVerifier(Keyring(path=path), [Algorithm.RS256], Expected(audience=("headwater",)))
    for key in ("rsa", "rsa of a friend"):
        await door.verify(rs256(kid=None, key=key), BEGINNING)
    with pytest.raises(Unauthenticated, match="not signed with a key"):
        await door.verify(rs256(kid="rsa", key="rsa of a friend"), BEGINNING)


async def test_a_public_key_as_pem_is_for_tokens_of_any_key_name(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(rsa_public_pem())
    keyring = Keyring(path=str(tmp_path / "key.pem"))
    door = JsonWebTokenVerifier(keyring, [Algorithm.RS256], Expected(audience=("headwater",)))
    await door.verify(rs256(kid="whatever"), BEGINNING)
    await door.verify(rs256(kid=None), BEGINNING)
    assert keyring.algorithms() == {Algorithm.RS256}


async def test_a_secret_in_a_jwks_is_for_hs256(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "keys.json", {"kty": "oct", "kid": "s", "k": part(SECRET)})
    door = JsonWebTokenVerifier(Keyring(path=path), [Algorithm.HS256], Expected(audience=("headwater",)))
    await door.verify(token({"alg": "HS256", "kid": "s"}, claims(), by_secret()), BEGINNING)
    with pytest.raises(Unauthenticated):
        await door.verify(token({"alg": "HS256", "kid": "t"}, claims(), by_secret()), BEGINNING)


async def test_keys_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    hand = Hand()
    path = write_jwks(tmp_path / "keys.json", public_jwk("rsa"))
    keyring = Keyring(path=path, monotonic=hand)
    door = JsonWebTokenVerifier(keyring, list(Algorithm)[1:], Expected(audience=("headwater",)))
    before = door.version()
    await door.verify(rs256(), BEGINNING)
    write_jwks(tmp_path / "new.json", public_jwk("ed"))
    os.replace(tmp_path / "new.json", path)
    assert door.version() == before, "the file is looked at once a second"
    hand.at += LOOK_SECONDS
    assert door.version() != before
    await door.verify(eddsa(), BEGINNING)
    with pytest.raises(Unauthenticated):
        await door.verify(rs256(), BEGINNING)


@pytest.mark.parametrize("content", [b"", b"{", b"not a key", None])
async def test_a_file_that_got_broken_leaves_the_keys_as_they_were(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand = Hand()
    path = Path(write_jwks(tmp_path / "keys.json", public_jwk("rsa")))
    keyring = Keyring(path=str(path), monotonic=hand)
    door = JsonWebTokenVerifier(keyring, [Algorithm.RS256], Expected(audience=("headwater",)))
    path.unlink() if content is None else path.write_bytes(content)
    hand.at += LOOK_SECONDS
    assert door.version() == 0
    await door.verify(rs256(), BEGINNING)
    assert "the keys stay as they were" in caplog.text


@pytest.mark.parametrize("left", [[], [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]])
async def test_a_jwks_that_has_no_key_any_more_lets_nobody_in(left: list[dict[str, str]], tmp_path: Path) -> None:
    hand = Hand()
    path = write_jwks(tmp_path / "keys.json", public_jwk("rsa"))
    door = JsonWebTokenVerifier(
        Keyring(path=path, monotonic=hand), [Algorithm.RS256], Expected(audience=("headwater",))
    )
    before = door.version()
    await door.verify(rs256(), BEGINNING)
    write_jwks(Path(path), *left)
    hand.at += LOOK_SECONDS
    assert door.version() != before, "tokens that were known are checked again"
    with pytest.raises(Unauthenticated):
        await door.verify(rs256(), BEGINNING)


def write_pem(path: Path, private: Any) -> str:
    path.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(path)


def test_keys_that_must_not_or_cannot_be_used_are_refused(tmp_path: Path) -> None:
    private = rsa_key("rsa").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "private.pem").write_bytes(private)
    with pytest.raises(ConfigError, match="private key"):
        Keyring(path=str(tmp_path / "private.pem"))
    with pytest.raises(ConfigError, match="1024 bits"):
        Keyring(path=write_pem(tmp_path / "short.pem", generate_private_key(65_537, 1_024)))
    with pytest.raises(ConfigError, match="neither RSA nor Ed25519"):
        Keyring(path=write_pem(tmp_path / "ec.pem", ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(ConfigError, match="cannot be read"):
        Keyring(path=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match="at least 32 bytes; it has 5"):
        Keyring(b"short")
    with pytest.raises(ConfigError, match="of another kind"):
        Keyring(rsa_public_pem())


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "RSA", "n": "AA", "e": "AQAB", "use": "enc"},
        {"kty": "RSA", "n": "AA", "e": "AQAB", "alg": "RS512"},
        {"kty": "OKP", "crv": "X25519", "x": "AA"},
    ],
)
def test_keys_for_something_else_are_left_out(jwk: dict[str, str], tmp_path: Path) -> None:
    keyring = Keyring(path=write_jwks(tmp_path / "keys.json", jwk, public_jwk("ed")))
    assert keyring.algorithms() == {Algorithm.EDDSA}
    with pytest.raises(ConfigError, match="has no key for HS256, RS256, EdDSA"):
        Keyring(path=write_jwks(tmp_path / "alone.json", jwk))


@pytest.mark.parametrize(
    "jwk",
    [{"kty": "RSA", "n": "AA"}, {"kty": "OKP", "crv": "Ed25519", "x": "AA"}, {"kty": "oct", "k": "AA"}, {"kid": "x"}],
)
def test_a_key_that_is_broken_is_named(jwk: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Keyring(path=write_jwks(tmp_path / "keys.json", {"kid": "broken", **jwk}))


async def test_the_private_half_of_a_jwk_is_not_read(tmp_path: Path) -> None:
    numbers = rsa_key("rsa").private_numbers()
    jwk = {**public_jwk("rsa"), "d": part(numbers.d.to_bytes(256, "big"))}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk]}))
    keyring = Keyring(path=str(tmp_path / "keys.json"))
    (key,) = keyring.find(Algorithm.RS256, "rsa")
    assert not hasattr(key.key, "sign")
    door = JsonWebTokenVerifier(keyring, [Algorithm.RS256], Expected(audience=("headwater",)))
    await door.verify(rs256(), BEGINNING)


def test_keys_do_not_show_themselves() -> None:
    keyring = Keyring(SECRET)
    assert SECRET.decode() not in repr(keyring.find(Algorithm.HS256, None))


async def test_headers_that_say_nothing_to_us_are_passed_over(tmp_path: Path) -> None:
    rsa = token({"alg": "RS256", "kid": "rsa", "x5t": "abc", "jku": "https://issuer.example"}, claims(), by_rsa())
    ed = token({"alg": "EdDSA", "kid": "ed", "jwk": public_jwk("ed of a stranger")}, claims(), by_ed())
    for text in (rsa, ed):
        assert (await principal(tmp_path, text)).subject == "alice"
