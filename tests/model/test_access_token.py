"""What an access token looks like, and when one that is shown is good."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import Timestamp
from headwater.model.access_token import AccessToken, digest_of, judge_token, token_id, token_text
from headwater.model.principal import Principal, Scope

TEXT = token_text(b"\x01" * 6, b"\x02" * 32)
TOKEN = AccessToken(
    id="01" * 6,
    database="tenant",
    name="ci",
    digest=digest_of(TEXT),
    scopes=(Scope.PUBLISH,),
    queues=("orders.*",),
    created_at=Timestamp(100),
)


def changed(**fields: Any) -> AccessToken:
    return msgspec.structs.replace(TOKEN, **fields)


def test_a_token_has_a_prefix_an_id_and_256_bits() -> None:
    assert TEXT == "hw_" + "01" * 6 + "_" + "02" * 32
    assert token_id(TEXT) == "01" * 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hw_",
        TEXT[:-1],
        TEXT + "0",
        TEXT + "\n",
        " " + TEXT,
        TEXT.upper(),
        TEXT.replace("hw_", "xx_"),
        TEXT.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"),
        TEXT.replace("_", "-"),
    ],
)
def test_what_does_not_look_like_a_token_has_no_id(text: str) -> None:
    assert token_id(text) is None


@given(st.binary(min_size=6, max_size=6), st.binary(min_size=32, max_size=32))
def test_every_token_can_be_taken_apart(id_part: bytes, secret: bytes) -> None:
    assert token_id(token_text(id_part, secret)) == id_part.hex()


def test_a_good_token_is_good_and_says_who_shows_it() -> None:
    assert judge_token(TOKEN, TEXT, Timestamp(200)) == ""
    assert TOKEN.principal() == Principal(
        database="tenant", subject="ci", scopes=frozenset({Scope.PUBLISH}), queues=("orders.*",)
    )


def test_a_token_that_is_unknown_wrong_revoked_or_too_old_is_not_good() -> None:
    now = Timestamp(200)
    assert judge_token(None, TEXT, now) == "no such token"
    assert judge_token(TOKEN, TEXT[:-1] + "3", now) == "no such token"
    assert judge_token(changed(revoked_at=Timestamp(300)), TEXT, now) == "the token is revoked"
    assert judge_token(changed(expires_at=now), TEXT, now) == "the token has expired"
    assert judge_token(changed(expires_at=Timestamp(201)), TEXT, now) == ""


def test_a_token_as_text_shows_no_digest() -> None:
    assert TOKEN.digest not in repr(TOKEN)
