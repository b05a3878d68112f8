"""Settings about access: from variables and options, checked at once, and silent about secrets."""

from pathlib import Path
from typing import Any

import pytest

from headwater.doors.access.guard import make_verifiers
from headwater.doors.access.keys import Algorithm
from headwater.doors.access.settings import AccessSettings, Auth, load_access
from headwater.errors import ConfigError
from tests.doors.access.issuer import public_jwk, write_jwks

CANARY = "canary-secret-0123456789-0123456789"


def test_without_a_word_there_is_no_authentication_and_no_limit_but_on_guessing() -> None:
    assert load_access({}) == AccessSettings()
    assert load_access({"HEADWATER_AUTH": "none"}).auth == ()
    assert load_access({"HEADWATER_AUTH": ""}).auth == ()


def test_variables_are_read_and_options_lie_over_them() -> None:
    variables = {
        "HEADWATER_AUTH": "token, jwt",
        "HEADWATER_JWT_ALGORITHMS": "HS256,EdDSA",
        "HEADWATER_JWT_SECRET": CANARY,
        "HEADWATER_JWT_LEEWAY_SECONDS": "2.5",
        "HEADWATER_ALLOWED_HOSTS": "q.example.org,[fd00::1]",
        "HEADWATER_REQUESTS_PER_SECOND": "100",
        "HEADWATER_OTHER": "x",
    }
    settings = load_access(variables, jwt_issuer="https://issuer.example", requests_per_second="50")
    assert settings.auth == (Auth.TOKEN, Auth.JWT)
    assert settings.jwt_algorithms == (Algorithm.HS256, Algorithm.EDDSA)
    assert (settings.jwt_leeway_seconds, settings.requests_per_second) == (2.5, 50.0)
    assert settings.allowed_hosts == ("q.example.org", "[fd00::1]")
    assert settings.jwt_issuer == "https://issuer.example"


GOOD_JWT = {"auth": "jwt", "jwt_algorithms": "HS256", "jwt_secret": CANARY}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"auth": "password"}, "auth"),
        ({"auth": "token,none"}, "auth"),
        ({"auth": "jwt"}, "jwt_algorithms"),
        ({**GOOD_JWT, "jwt_algorithms": "none"}, "jwt_algorithms"),
        ({**GOOD_JWT, "jwt_algorithms": "HS256,none"}, "jwt_algorithms"),
        ({**GOOD_JWT, "jwt_algorithms": "hs256"}, "jwt_algorithms"),
        ({**GOOD_JWT, "jwt_secret": ""}, "jwt needs keys"),
        ({**GOOD_JWT, "jwt_secret_file": "x"}, "set one of them"),
        ({**GOOD_JWT, "jwt_algorithms": "RS256"}, "jwt_secret is for HS256"),
        ({**GOOD_JWT, "jwt_leeway_seconds": "301"}, "jwt_leeway_seconds"),
        ({**GOOD_JWT, "jwt_leeway_seconds": "nan"}, "jwt_leeway_seconds"),
        ({"requests_per_second": "-1"}, "requests_per_second"),
        ({"requests_per_second": "many"}, "requests_per_second"),
        ({"guesses_per_minute": "0"}, "guesses_per_minute"),
        ({"guesses_burst": "inf"}, "guesses_burst"),
        ({"allowed_origins": "*"}, "allowed_origins"),
        ({"allowed_origins": "null"}, "allowed_origins"),
        ({"allowed_origins": "https://*.example.org"}, "allowed_origins"),
        ({"allowed_origins": "https://a.example/path"}, "allowed_origins"),
        ({"allowed_hosts": "*.example"}, "allowed_hosts"),
        ({"allowed_hosts": "https://a.example"}, "allowed_hosts"),
        ({"allowed_hosts": "a.example:6632"}, "allowed_hosts"),
        ({"no_such": "1"}, "no_such"),
    ],
)
def test_a_wrong_setting_names_itself_and_shows_no_secret(settings: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=names) as refused:
        load_access({}, **settings)
    assert CANARY not in str(refused.value)


def test_every_algorithm_needs_a_key_of_its_own(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "keys.json", public_jwk("ed"))
    settings = load_access({}, auth="jwt", jwt_algorithms="RS256,EdDSA", jwt_keys_file=path)
    with pytest.raises(ConfigError, match="no key for RS256"):
        make_verifiers(settings, None, None)  # type: ignore[arg-type]


def test_the_secret_may_stand_in_a_file_with_a_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CANARY + "\n")
    settings = load_access({}, auth="jwt", jwt_algorithms="HS256", jwt_secret_file=str(tmp_path / "secret"))
    (verifier,) = make_verifiers(settings, None, None)  # type: ignore[arg-type]
    assert verifier.fits("a.b.c")
    (tmp_path / "secret").write_text("short\n")
    with pytest.raises(ConfigError, match="at least 32 bytes; it has 5"):
        make_verifiers(settings, None, None)  # type: ignore[arg-type]


def test_settings_as_text_hide_the_secret() -> None:
    assert CANARY not in repr(load_access({}, **GOOD_JWT))
    assert "jwt_secret='***'" in repr(load_access({}, **GOOD_JWT))
