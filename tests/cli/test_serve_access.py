"""`serve --auth`: real servers that ask callers who they are."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.model.access_token import digest_of
from tests.cli.program import Program, end
from tests.doors.access.issuer import by_rsa, by_secret, claims, public_jwk, rs256, token, write_jwks
from tests.waiting import expect_soon

SECRET = "canary-of-a-secret-0123456789abcdef"


@contextmanager
def serving(program: Program, *arguments: str, **variables: str) -> Iterator[tuple[Any, str]]:
    """A server that said it is ready, and its address."""
    with program.start("serve", "--port", "0", "--json", *arguments, **variables) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield process, ready["url"]


def ask(url: str, credential: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if credential:
        named["Authorization"] = f"Bearer {credential}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=named), timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def create(program: Program, *arguments: str) -> str:
    return program.expect(0, "token", "create", "ci", "--scope", "subscribe", *arguments).out.strip()


def lasting(**changes: Any) -> dict[str, Any]:
    """Claims that hold now, by the clock on the wall."""
    now = int(time.time())
    return claims(**{"iat": now, "exp": now + 600, **changes})


def test_a_server_with_tokens_lets_in_who_shows_one_until_it_is_revoked(program: Program) -> None:
    good = create(program)
    with serving(program, "--auth", "token") as (process, url):
        status, headers, body = ask(f"{url}/version")
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="headwater"')
        assert json.loads(body)["error"]
        assert ask(f"{url}/version", good)[0] == 200
        assert ask(f"{url}/version", good[:-1] + "x")[0] == 401
        assert ask(f"{url}/health")[0] == 200
        # Another process revokes it, while this server runs and knows it.
        program.expect_process(0, "token", "revoke", good[3:15])
        expect_soon(lambda: ask(f"{url}/version", good)[0] == 401)
        fresh = program.expect_process(0, "token", "create", "ci", "--scope", "subscribe").out.strip()
        assert ask(f"{url}/version", fresh)[0] == 200
        assert end(process, signal.SIGTERM).code == 0


def test_two_servers_on_one_store_refuse_what_was_revoked_on_it(program: Program) -> None:
    good = create(program)
    with serving(program, "--auth", "token") as (_, one), serving(program, HEADWATER_AUTH="token") as (_, two):
        assert [ask(f"{url}/version", good)[0] for url in (one, two)] == [200, 200]
        program.expect(0, "token", "revoke", good[3:15])
        expect_soon(lambda: [ask(f"{url}/version", good)[0] for url in (one, two)] == [401, 401])


def test_with_authentication_a_server_may_listen_for_others(program: Program) -> None:
    good = create(program)
    with serving(program, "--auth", "token", "--host", "0.0.0.0") as (_, url):
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert ask(f"{here}/version", good, Host="queues.example.org")[0] == 200
        assert ask(f"{here}/version", good, Origin="http://evil.example")[0] == 403
        assert ask(f"{here}/version")[0] == 401


def test_json_web_tokens_are_checked_with_the_keys_of_a_file_that_may_change(program: Program) -> None:
    path = Path(write_jwks(program.folder / "keys.json", public_jwk("rsa")))
    options = [
        "--auth",
        "jwt",
        "--jwt-algorithms",
        "RS256",
        "--jwt-keys-file",
        str(path),
        "--jwt-audience",
        "headwater",
    ]
    old = token({"alg": "RS256", "kid": "rsa"}, lasting(), by_rsa())
    new = token({"alg": "RS256", "kid": "new"}, lasting(), by_rsa("rsa of a friend"))
    with serving(program, *options, HEADWATER_GUESSES_BURST="1000000") as (_, url):
        assert [ask(f"{url}/version", text)[0] for text in (old, new)] == [200, 401]
        write_jwks(path, public_jwk("rsa of a friend", kid="new"))
        expect_soon(lambda: [ask(f"{url}/version", text)[0] for text in (old, new)] == [401, 200])
        assert ask(f"{url}/version", rs256())[0] == 401, "expired long ago"


def test_whoever_guesses_or_asks_too_often_is_told_to_wait(program: Program) -> None:
    good = create(program)
    variables = {"HEADWATER_GUESSES_BURST": "2", "HEADWATER_REQUESTS_BURST": "5"}
    with serving(program, "--auth", "token", "--requests-per-second", "0.01", **variables) as (_, url):
        assert [ask(f"{url}/version", good)[0] for _ in range(6)] == [200] * 5 + [429]
        guesses = [ask(f"{url}/version", "hw_guess") for _ in range(3)]
        assert [status for status, _, _ in guesses] == [401, 401, 429]
        assert int(guesses[2][1]["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--auth", "password"], "auth"),
        (["--auth", "jwt"], "jwt_algorithms"),
        (["--auth", "jwt", "--jwt-algorithms", "none"], "jwt_algorithms"),
        (["--auth", "jwt", "--jwt-algorithms", "RS256"], "jwt needs keys"),
        (["--auth", "jwt", "--jwt-algorithms", "RS256", "--jwt-keys-file", "missing"], "missing cannot be read"),
        (["--auth", "none", "--host", "0.0.0.0"], "refusing to listen"),
        (["--allowed-origins", "*"], "allowed_origins"),
    ],
)
def test_a_server_that_could_not_guard_itself_does_not_start(program: Program, arguments: list[str], says: str) -> None:
    ended = program.expect_process(2, "serve", "--port", "0", *arguments)
    assert says in ended.err
    assert ended.err.count("\n") == 1


# ── secrets ──


def test_no_secret_is_in_anything_that_is_printed_logged_or_answered(program: Program) -> None:
    """A canary run: everything a server and the commands say is searched for everything that must stay unsaid."""
    good = create(program)
    expired = token({"alg": "HS256"}, lasting(exp=1), by_secret(SECRET.encode()))
    signed = token({"alg": "HS256"}, lasting(role="admin"), by_secret(SECRET.encode()))
    forged = token({"alg": "none"}, lasting(), by_secret())
    wrong = good[:-8] + "deadbeef"
    variables = {"HEADWATER_JWT_SECRET": SECRET, "HEADWATER_GUESSES_BURST": "3"}
    options = ["--auth", "token,jwt", "--jwt-algorithms", "HS256", "--jwt-audience", "headwater"]
    said = ""
    with serving(program, *options, **variables) as (process, url):
        said += Path(f"/proc/{process.pid}/cmdline").read_text()
        statuses = []
        for credential in (good, signed, expired, forged, wrong, wrong, "a" * 9_000, f"{good},{good}"):
            for path in ("/", "/version", "/health", "/nothing", "/metrics"):
                status, headers, body = ask(f"{url}{path}", credential)
                statuses.append(status)
                said += f"{headers}{body.decode()}"
        assert {200, 401, 404, 429} <= set(statuses)
        program.expect(0, "token", "revoke", good[3:15])
        expect_soon(lambda: ask(f"{url}/version", good)[0] in (401, 429))
        ended = end(process, signal.SIGTERM)
    said += ended.out + ended.err
    assert "refused: " in said, "the log says why"
    for command in (["token", "list"], ["token", "list", "--json"], ["doctor"], ["doctor", "--json"]):
        ended = program.run(*command, **variables)
        said += ended.out + ended.err
    short = program.run("serve", "--port", "0", *options, HEADWATER_JWT_SECRET="short-canary")
    said += short.out + short.err
    assert short.code == 2
    unsaid = [good, good.rpartition("_")[2], digest_of(good), SECRET, "short-canary", signed, expired, forged, wrong]
    assert [secret for secret in unsaid if secret in said] == []


def test_no_option_takes_a_secret(program: Program) -> None:
    ended = program.expect(2, "serve", "--jwt-secret", SECRET)
    assert SECRET not in ended.err
