"""What servers say of how they are guarded is the same where they let the same callers do the same."""

from typing import Any

import msgspec
import pytest

from headwater.doors.access.guard import describe_guard
from headwater.doors.access.keys import Algorithm
from headwater.doors.access.settings import AccessSettings, Auth
from headwater.model.command_template import CommandTemplate, read_templates

SETTINGS = AccessSettings(
    auth=(Auth.TOKEN, Auth.JWT), jwt_algorithms=(Algorithm.HS256, Algorithm.RS256), jwt_audience=("a", "b")
)
COMMANDS = read_templates(b'{"list": {"argv": ["ls"]}}')


def described(commands: dict[str, CommandTemplate] | None = None, **changed: Any) -> str:
    return describe_guard(msgspec.structs.replace(SETTINGS, **changed), commands or {})


@pytest.mark.parametrize(
    "changed",
    [
        {"auth": (Auth.JWT, Auth.TOKEN)},
        {"jwt_audience": ("b", "a")},
        {"allowed_hosts": ("me",)},
        {"allowed_origins": ("https://app.example",)},
        {"jwt_keys_file": "/other/place"},
        {"jwt_secret": "a secret of this machine, and long"},
    ],
)
def test_servers_that_let_the_same_callers_in_say_the_same(changed: dict[str, Any]) -> None:
    assert described(**changed) == described()


@pytest.mark.parametrize(
    "changed",
    [
        {"auth": ()},
        {"auth": (Auth.TOKEN,)},
        {"jwt_audience": ("a",)},
        {"jwt_issuer": "somebody"},
        {"jwt_algorithms": (Algorithm.HS256,)},
        {"jwt_role_claims": ("groups",)},
        {"jwt_database_claim": "tenant"},
        {"requests_per_second": 5.0},
        {"guesses_per_minute": 100.0},
        {"commands": dict(COMMANDS)},
    ],
)
def test_servers_that_do_not_say_something_else(changed: dict[str, Any]) -> None:
    assert described(**changed) != described()


def test_settings_of_what_is_not_used_say_nothing() -> None:
    plain = describe_guard(AccessSettings(auth=(Auth.TOKEN,)), {})
    assert describe_guard(AccessSettings(auth=(Auth.TOKEN,), jwt_issuer="somebody"), {}) == plain
    assert plain.startswith("token/")
    assert describe_guard(AccessSettings(), {}).startswith("none/")


def test_no_secret_is_in_what_is_said() -> None:
    assert described(jwt_secret="one secret of thirty-two letters") == described(jwt_secret="another one")
