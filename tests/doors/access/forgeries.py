"""Tokens that must not open any door: each is good but for what its name says.

`FORGERIES` maps that name to the token and to the reason it must be refused for, where all algorithms are taken.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.doors.access.issuer import (
    NOW,
    SECRET,
    by_ed,
    by_rsa,
    by_secret,
    claims,
    ed_public_raw,
    eddsa,
    hs256,
    part,
    public_jwk,
    rs256,
    rsa_public_pem,
    token,
)

WAY = "signed in a way"
KEY = "not signed with a key"
PARTS = "three parts"
BASE64 = "not base64url"
TWICE = "says something twice"
CHANGING = "not understood here"
EXPIRED = "has expired"
EARLY = "not valid yet"
AUDIENCE = "another audience"
ISSUER = "another issuer"
CLAIMS = "the token's claims"
HEADER = "the token's header"

Forgery = tuple[str, str, str]


def unsigned(text: bytes) -> bytes:
    return b""


def made_up(text: bytes) -> bytes:
    return b"\0" * 32


def with_header(**members: Any) -> dict[str, Any]:
    return {"alg": "HS256", "typ": "JWT", **members}


def splice(good: str, place: int, change: Callable[[str], str]) -> str:
    """A token with one part changed after it was signed."""
    parts = good.split(".")
    parts[place] = change(parts[place])
    return ".".join(parts)


def flip(text: str) -> str:
    """The same length, the same alphabet, other bytes."""
    return ("A" if text[0] != "A" else "B") + text[1:]


def algorithm_forgeries() -> Iterator[Forgery]:
    for name in ("none", "None", "NONE", "nOnE", "none ", ""):
        text = f"{part({'alg': name, 'typ': 'JWT'})}.{part(claims())}"
        yield f"alg {name!r} with an empty signature", text + ".", BASE64
        yield f"alg {name!r} with some signature", text + "." + part(b"x"), WAY
        yield f"alg {name!r}, signed with the right secret", token({"alg": name}, claims(), by_secret()), WAY
    pem = rsa_public_pem()
    for how, secret in {
        "as PEM": pem,
        "as PEM without its last line end": pem.rstrip(),
        "as the body of its PEM": b"".join(pem.splitlines()[1:-1]),
        "as the n of its JWK": public_jwk("rsa")["n"].encode(),
        "Ed25519 raw": ed_public_raw(),
        "as the x of its JWK": public_jwk("ed")["x"].encode(),
    }.items():
        yield f"HMAC with the public key {how}", token(with_header(), claims(), by_secret(secret)), KEY
        named = token(with_header(kid="rsa"), claims(), by_secret(secret))
        yield f"HMAC with the public key {how}, naming the RSA key", named, KEY
    for name in ("HS384", "HS512", "RS384", "RS512", "PS256", "ES256", "ES256K", "Ed25519", "hs256", "RSA", "dir"):
        yield f"alg {name}, which is not taken", token({"alg": name}, claims(), by_secret()), WAY
    yield "alg RS256 on an HMAC", token({"alg": "RS256"}, claims(), by_secret()), KEY
    yield "alg EdDSA on an HMAC", token({"alg": "EdDSA"}, claims(), by_secret()), KEY
    yield "alg RS256 signed with the Ed25519 key", token({"alg": "RS256"}, claims(), by_ed()), KEY
    yield "alg EdDSA signed with the RSA key", token({"alg": "EdDSA"}, claims(), by_rsa()), KEY
    for wrong in (None, 7, ["HS256"], {"alg": "HS256"}, True):
        yield f"alg {wrong!r}", token({"alg": wrong}, claims(), by_secret()), HEADER
    yield "no alg", token({"typ": "JWT"}, claims(), by_secret()), HEADER
    yield "alg in capitals", token({"ALG": "HS256"}, claims(), by_secret()), HEADER


def key_forgeries() -> Iterator[Forgery]:
    yield "another secret", token(with_header(), claims(), by_secret(b"z" * 40)), KEY
    yield "an empty secret", token(with_header(), claims(), by_secret(b"")), KEY
    yield "the secret with a line end", token(with_header(), claims(), by_secret(SECRET + b"\n")), KEY
    yield "another RSA key", rs256(key="rsa of a stranger"), KEY
    yield "another RSA key, no kid", rs256(kid=None, key="rsa of a stranger"), KEY
    yield "another Ed25519 key", eddsa(key="ed of a stranger"), KEY
    yield "the right key under a name that is not known", rs256(kid="other"), KEY
    yield "the RSA key under the name of the other", rs256(kid="ed"), KEY
    for kid in (
        "../../../../dev/null",
        "/dev/null",
        "rsa\x00",
        "rsa' OR '1'='1",
        "rsa ",
        "RSA",
        "http://evil.example/k",
    ):
        yield f"kid {kid!r}", rs256(kid=kid, key="rsa of a stranger"), KEY
    for wrong in (7, None, ["rsa"], {"rsa": 1}, True):
        yield f"kid {wrong!r}", token({"alg": "RS256", "kid": wrong}, claims(), by_rsa()), HEADER
    stranger = public_jwk("rsa of a stranger", kid="rsa")
    for member, value in {
        "jwk": stranger,
        "jku": "https://evil.example/keys.json",
        "x5u": "https://evil.example/cert.pem",
        "x5c": ["MIIB"],
    }.items():
        header = {"alg": "RS256", "kid": "rsa", member: value}
        yield f"a key of its own in {member}", token(header, claims(), by_rsa("rsa of a stranger")), KEY
    own = {"alg": "EdDSA", "jwk": public_jwk("ed of a stranger")}
    yield "an Ed25519 key of its own", token(own, claims(), by_ed("ed of a stranger")), KEY
    oct_key = {"kty": "oct", "k": part(b"k" * 32)}
    yield "a secret of its own", token(with_header(jwk=oct_key), claims(), by_secret(b"k" * 32)), KEY


def signature_forgeries() -> Iterator[Forgery]:
    good = hs256()
    head, body, signature = good.split(".")
    yield "an empty signature", f"{head}.{body}.", BASE64
    yield "zeros for a signature", token(with_header(), claims(), made_up), KEY
    yield "a signature cut short", good[:-4], KEY
    yield "a signature with more behind", f"{good}AAAA", KEY
    yield "another signature", splice(good, 2, flip), KEY
    yield "another signature, RSA", splice(rs256(), 2, flip), KEY
    yield "another signature, EdDSA", splice(eddsa(), 2, flip), KEY
    yield "the signature of another token", f"{head}.{body}.{hs256(sub='bob').split('.')[2]}", KEY
    yield "other claims under a good signature", splice(good, 1, lambda _: part(claims(role="admin"))), KEY
    yield "another header under a good signature", splice(good, 0, lambda _: part(with_header(a=1))), KEY
    yield "only the parts that are signed", f"{head}.{body}", PARTS
    yield "a fourth part", f"{good}.{signature}", PARTS
    yield "five parts, as if encrypted", f"{good}.{body}.{signature}", PARTS
    yield "nothing but dots", "..", BASE64
    yield "no claims", f"{head}..{signature}", BASE64
    yield "no header", f".{body}.{signature}", BASE64
    spare = signature[:-1] + chr(ord(signature[-1]) + 1)
    yield "spare bits at the end of the signature", f"{head}.{body}.{spare}", BASE64
    yield "padding", f"{head}.{body}.{signature}=", BASE64
    yield "padding inside", splice(good, 1, lambda text: text + "=="), BASE64
    yield "a line end behind", f"{good}\n", BASE64
    yield "a blank before", f" {good}", BASE64
    yield "a blank inside", splice(good, 1, lambda text: text[:4] + " " + text[4:]), BASE64
    yield "a tab inside", splice(good, 2, lambda text: text[:4] + "\t" + text[4:]), BASE64
    yield "a NUL inside", splice(good, 1, lambda text: text[:4] + "\0" + text[4:]), BASE64
    yield "plus and slash for minus and underscore", f"{head}.{body}.+/{signature[2:]}", BASE64
    yield "letters that only look like base64", splice(good, 1, lambda text: "\uff21" + text[1:]), BASE64
    yield "a number of letters that base64 cannot have", f"{head}.{body}.A", BASE64


def content_forgeries() -> Iterator[Forgery]:
    def signed(header: Any, payload: Any) -> str:
        return token(header, payload, by_secret())

    yield "crit", signed(with_header(crit=["exp"]), claims()), CHANGING
    yield "crit for something unheard of", signed(with_header(crit=["unheard"], unheard=1), claims()), CHANGING
    yield "an empty crit", signed(with_header(crit=[]), claims()), CHANGING
    yield "b64 false", signed(with_header(b64=False, crit=["b64"]), claims()), CHANGING
    yield "b64 false without crit", signed(with_header(b64=False), claims()), CHANGING
    yield "compressed", signed(with_header(zip="DEF"), claims()), CHANGING
    yield "a header of an encrypted token", signed(with_header(enc="A128GCM"), claims()), CHANGING
    yield "a token within a token", signed(with_header(cty="JWT"), hs256().encode()), "not JSON"
    yield "claims of another type", signed(with_header(typ="logout+jwt"), claims()), "another type"
    yield "typ 7", signed(with_header(typ=7), claims()), HEADER
    twice = b'{"alg":"HS256","alg":"none"}'
    yield "alg twice", signed(twice, claims()), TWICE
    yield "alg twice, the good one last", signed(b'{"alg":"none","alg":"HS256"}', claims()), TWICE
    roles = f'{{"exp":{NOW + 600},"aud":"headwater","role":"read-only","role":"admin"}}'.encode()
    yield "role twice", signed(with_header(), roles), TWICE
    escaped = f'{{"exp":{NOW - 600},"\\u0065xp":{NOW + 600}}}'.encode()
    yield "exp twice, once escaped", signed(with_header(), escaped), TWICE
    deep = f'{{"exp":{NOW + 600},"realm":{{"roles":[],"roles":["admin"]}}}}'.encode()
    yield "something twice further down", signed(with_header(), deep), TWICE
    for name, payload in {
        "a list": b"[]",
        "a text": b'"alice"',
        "null": b"null",
        "a number": b"7",
    }.items():
        yield f"{name} for claims", signed(with_header(), payload), "JSON objects"
        yield f"{name} for a header", signed(payload, claims()), "JSON objects"
    yield "claims that are no JSON", signed(with_header(), b"{'exp': 1}"), "not JSON"
    yield "claims with more behind", signed(with_header(), b'{"exp":9999999999}{}'), "not JSON"
    yield "claims in UTF-16", signed(with_header(), '{"exp":9999999999}'.encode("utf-16")), "not JSON"
    yield "claims that are no UTF-8", signed(with_header(), b'{"exp":9999999999,"sub":"\xff"}'), "not JSON"
    yield "a byte order mark", signed(with_header(), b'\xef\xbb\xbf{"exp":9999999999}'), "not JSON"
    yield "brackets without end", signed(with_header(), b'{"a":' + b"[" * 4_000), "not JSON"
    yield "a number without end", signed(with_header(), b'{"exp":' + b"9" * 4_500 + b"}"), "not JSON"


def claim_forgeries() -> Iterator[Forgery]:
    yield "expired long ago", hs256(exp=NOW - 86_400), EXPIRED
    yield "expired just now, leeway used up", hs256(exp=NOW - 10), EXPIRED
    yield "expired at the beginning of time", hs256(exp=0), EXPIRED
    yield "expired before that", hs256(exp=-1), EXPIRED
    yield "no exp", hs256(exp=None), CLAIMS
    for wrong in ("9999999999", "never", True, [NOW + 600], {"at": NOW + 600}):
        yield f"exp {wrong!r}", hs256(exp=wrong), CLAIMS
    yield "exp null", token(with_header(), b'{"exp":null,"aud":"headwater"}', by_secret()), CLAIMS
    yield "exp in capitals", hs256(exp=None, EXP=NOW + 600), CLAIMS
    for name in ("NaN", "Infinity", "-Infinity"):
        payload = f'{{"exp":{name},"aud":"headwater"}}'.encode()
        yield f"exp {name}", token(with_header(), payload, by_secret()), "is no JSON"
    endless = b'{"exp":1e999,"aud":"headwater"}'
    yield "exp beyond all numbers", token(with_header(), endless, by_secret()), "out of range"
    yield "exp after the end of time", hs256(exp=1e305), "out of range"
    yield "exp in milliseconds", hs256(exp=NOW * 1_000), "out of range"
    yield "nbf before the beginning of time", hs256(nbf=-1e305), "out of range"
    yield "not before tomorrow", hs256(nbf=NOW + 86_400), EARLY
    yield "not before leeway is over", hs256(nbf=NOW + 11), EARLY
    yield "nbf as text", hs256(nbf=str(NOW)), CLAIMS
    yield "issued tomorrow", hs256(iat=NOW + 86_400), "issued in the future"
    yield "for another audience", hs256(aud="elsewhere"), AUDIENCE
    yield "for several others", hs256(aud=["elsewhere", "nowhere"]), AUDIENCE
    yield "for nobody", hs256(aud=[]), AUDIENCE
    yield "for no audience", hs256(aud=None), AUDIENCE
    yield "for an audience that begins alike", hs256(aud="headwater.evil.example"), AUDIENCE
    yield "for an audience in capitals", hs256(aud="Headwater"), AUDIENCE
    yield "an audience that is no text", hs256(aud={"headwater": True}), CLAIMS
    yield "from another issuer", hs256(iss="https://evil.example"), ISSUER
    yield "from no issuer", hs256(iss=None), ISSUER
    yield "from an issuer that begins alike", hs256(iss="https://issuer.example.evil.example"), ISSUER
    yield "from an issuer with a slash behind", hs256(iss="https://issuer.example/"), ISSUER
    yield "from several issuers", hs256(iss=["https://issuer.example"]), CLAIMS
    yield "a subject that is no text", hs256(sub=7), CLAIMS
    yield "a subject with a line end", hs256(sub="alice\r\nx-admin: yes"), "the subject"
    yield "a subject with half a letter", hs256(sub="\ud800"), "the subject"
    yield "a subject without end", hs256(sub="a" * 257), "the subject"
    yield "a database with a NUL", hs256(database="main\0"), "database name"
    yield "a database with a quote", hs256(database="main'--"), "database name"
    yield "a database that is no name", hs256(database=["main"]), "database name"
    yield "an empty database", hs256(database=""), "database name"
    yield "queues that are no pattern", hs256(queues=["orders[1]"]), "queue pattern"
    yield "queues that are no texts", hs256(queues=[7]), "must be a text or a list"
    yield "too many queues", hs256(queues=["a"] * 101), "at most 100"
    yield "roles that are no texts", hs256(roles={"admin": True}), "must be a text or a list"
    yield "a token that is too long", hs256(filler="a" * 8_192), "too long"


def all_forgeries() -> dict[str, tuple[str, str]]:
    makers = (algorithm_forgeries, key_forgeries, signature_forgeries, content_forgeries, claim_forgeries)
    found: dict[str, tuple[str, str]] = {}
    for maker in makers:
        for name, text, reason in maker():
            assert name not in found, name
            found[name] = (text, reason)
    return found


FORGERIES = all_forgeries()
