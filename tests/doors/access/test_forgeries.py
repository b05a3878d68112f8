"""No forged token opens the door, whichever algorithms it takes; and the good ones do."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.doors.access.json_web_tokens import JsonWebTokenVerifier
from headwater.doors.access.keys import Algorithm, Keyring
from headwater.errors import Unauthenticated
from headwater.model.json_web_token import parse_token
from tests.contracts.clock import BEGINNING
from tests.doors.access.forgeries import FORGERIES
from tests.doors.access.issuer import EXPECTED, SECRET, eddsa, hs256, part, rs256, verifier

CHOICES = {
    "HS256": (Algorithm.HS256,),
    "RS256": (Algorithm.RS256,),
    "EdDSA": (Algorithm.EDDSA,),
    "all": tuple(Algorithm),
}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ "
GOOD = {"HS256": hs256, "RS256": rs256, "EdDSA": eddsa}


def test_the_corpus_has_the_size_it_should_have() -> None:
    assert len(FORGERIES) >= 60
    assert len({text for text, _ in FORGERIES.values()}) >= 60


@pytest.mark.parametrize("choice", CHOICES)
async def test_a_good_token_is_taken_where_its_algorithm_is(choice: str, tmp_path: Path) -> None:
    door = verifier(tmp_path, *CHOICES[choice])
    for algorithm, make in GOOD.items():
        if choice in (algorithm, "all"):
            assert (await door.verify(make(), BEGINNING)).principal.subject == "alice"
        else:
            with pytest.raises(Unauthenticated, match="signed in a way"):
                await door.verify(make(), BEGINNING)


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forged_token_is_refused_for_what_is_wrong_with_it(name: str, tmp_path: Path) -> None:
    text, reason = FORGERIES[name]
    with pytest.raises(Unauthenticated, match=reason):
        await verifier(tmp_path, *Algorithm).verify(text, BEGINNING)


@pytest.mark.parametrize("choice", ["HS256", "RS256", "EdDSA"])
async def test_no_forged_token_is_taken_where_fewer_algorithms_are(choice: str, tmp_path: Path) -> None:
    door = verifier(tmp_path, *CHOICES[choice])
    for text, _ in FORGERIES.values():
        with pytest.raises(Unauthenticated):
            await door.verify(text, BEGINNING)


@given(st.text(max_size=200))
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    with pytest.raises(Unauthenticated):
        parse_token(text)


@given(st.lists(st.binary(max_size=40), min_size=3, max_size=3))
def test_any_bytes_are_taken_apart_or_refused(parts: list[bytes]) -> None:
    with pytest.raises(Unauthenticated):
        parse_token(".".join(part(data) for data in parts))


@given(st.data())
def test_no_token_that_differs_in_one_letter_from_a_good_one_is_taken(data: st.DataObject) -> None:
    good = hs256()
    place = data.draw(st.integers(0, len(good) - 1))
    letter = data.draw(st.one_of(st.sampled_from(ALPHABET), st.characters()).filter(lambda other: other != good[place]))
    door = JsonWebTokenVerifier(Keyring(SECRET), [Algorithm.HS256], EXPECTED)
    with pytest.raises(Unauthenticated):
        asyncio.run(door.verify(good[:place] + letter + good[place + 1 :], BEGINNING))
