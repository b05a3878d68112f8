"""`serve` with several processes, with a certificate, behind a proxy, with a log of requests."""

import json
import os
import re
import signal
import ssl
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import Certificate, make_certificate
from tests.cli.program import Program, end
from tests.cli.test_serve import ask, serving
from tests.waiting import expect_soon


def children(parent: int) -> list[int]:
    """The processes that a process started."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(number) for number in text.split()]


def push(url: str, *payloads: Any) -> list[dict[str, Any]]:
    body = {"items": [{"queue": "orders", "payload": payload} for payload in payloads]}
    answer = httpx.post(f"{url}/api/v1/push", json=body)
    assert answer.status_code == 201, answer.text
    results: list[dict[str, Any]] = answer.json()
    return results


def pushed_by(url: str) -> dict[str, int]:
    """How many records each process pushed, whichever of them is asked."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(r'headwater_records_pushed_total\{process="(\d+)"\} ([\d.]+)', text)
    return {process: int(float(count)) for process, count in found}


def test_processes_share_a_port_and_a_store(program: Program) -> None:
    with serving(program, "--processes", "2") as (process, url):
        assert len(children(process.pid)) == 2
        pushed = 0

        def both_answered() -> bool:
            nonlocal pushed
            pushed += len(push(url, pushed))
            return min(pushed_by(url).values()) > 0

        expect_soon(both_answered)
        # Each is told of by the other within a second.
        expect_soon(lambda: all(sum(pushed_by(url).values()) == pushed for _ in range(10)))
        assert set(pushed_by(url)) == {"0", "1"}
        popped = httpx.get(f"{url}/api/v1/pop/queue/orders?batch=1000").json()["messages"]
        assert [message["data"] for message in popped] == list(range(pushed))
        ended = end(process, signal.SIGTERM)
    assert (ended.code, ended.out) == (0, "")


def test_a_process_that_takes_anothers_place_makes_no_new_store(program: Program) -> None:
    store, seen = program.folder / "headwater.db", set[int]()

    def was_replaced_or_made_another() -> bool:
        seen.update(children(process.pid))
        return store.exists() or len(seen) >= 4

    with serving(program, "--processes", "2") as (process, url):
        push(url, "kept")
        seen.update(children(process.pid))
        store.rename(program.folder / "away.db")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        expect_soon(was_replaced_or_made_another)
        assert not store.exists()
        end(process, signal.SIGTERM)


def test_a_process_that_dies_is_replaced(program: Program) -> None:
    with serving(program, "--processes", "2") as (process, url):
        before = set(children(process.pid))
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        expect_soon(lambda: len(set(children(process.pid)) - {victim}) == 2)
        expect_soon(lambda: answers(url))
        ended = end(process, signal.SIGTERM)
    assert ended.code == 0
    assert "another one takes its place" in ended.err


def answers(url: str) -> bool:
    """Whether ten connections in a row are answered: none is dealt to one who is gone."""
    try:
        return all(httpx.get(f"{url}/health").status_code == 200 for _ in range(10))
    except httpx.TransportError:
        return False


def test_processes_end_with_their_parent(program: Program) -> None:
    with serving(program, "--processes", "2") as (process, _):
        members = children(process.pid)
        process.kill()
        process.wait(10)
        expect_soon(lambda: not any(Path(f"/proc/{member}/exe").exists() for member in members))


def test_processes_that_cannot_start_say_why(program: Program) -> None:
    program.store.write_bytes(b"this is not a database" * 100)
    ended = program.run_process("serve", "--port", "0", "--processes", "2")
    assert ended.code != 0
    assert ended.out == ""
    assert "process" in ended.err


# ── certificates ──


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    """A certificate of this machine."""
    return make_certificate(tmp_path)


def test_a_server_with_a_certificate_speaks_https(program: Program, certificate: Certificate) -> None:
    shown, kept = certificate
    with serving(program, "--certificate", str(shown), "--certificate-key", str(kept)) as (process, url):
        assert url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(shown))
        with httpx.Client(verify=trust, base_url=url) as client:
            for number in range(3):
                body = {"items": [{"queue": "orders", "payload": number}]}
                assert client.post("/api/v1/push", json=body).status_code == 201
            popped = client.get("/api/v1/pop/queue/orders?batch=10&wait=true&timeout=1000").json()
            assert [message["data"] for message in popped["messages"]] == [0, 1, 2]
            assert client.get("/api/v1/pop/queue/orders?wait=true&timeout=10").status_code == 204
        with pytest.raises((OSError, httpx.TransportError)):
            httpx.get(url.replace("https", "http"))
        with urllib.request.urlopen(f"{url}/health", context=trust) as answer:
            assert answer.status == 200
        ended = end(process, signal.SIGTERM)
    assert (ended.code, ended.err) == (0, "")


def shown_at(url: str) -> str:
    """The certificate that a fresh connection is shown."""
    address = urllib.parse.urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    return ssl.get_server_certificate((address.hostname, address.port))


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(
    program: Program, certificate: Certificate, tmp_path: Path
) -> None:
    shown, kept = certificate
    (tmp_path / "renewed").mkdir()
    renewed = make_certificate(tmp_path / "renewed")
    before, after = shown.read_text(), renewed.shown.read_text()
    with serving(program, "--certificate", str(shown), "--certificate-key", str(kept)) as (process, url):
        with httpx.Client(verify=ssl.create_default_context(cadata=before), base_url=url) as old:
            assert old.get("/health").status_code == 200
            assert shown_at(url) == before
            # Between the writing of the one file and of the other they do not fit.
            renewed.shown.rename(shown)
            assert shown_at(url) == before
            renewed.kept.rename(kept)
            assert shown_at(url) == after
            shown.unlink()
            assert shown_at(url) == after
            assert old.get("/health").status_code == 200
        with httpx.Client(verify=ssl.create_default_context(cadata=after), base_url=url) as client:
            assert client.get("/health").status_code == 200
        ended = end(process, signal.SIGTERM)
    told = [json.loads(line)["message"] for line in ended.err.splitlines()]
    assert [line.split(":")[0] for line in told] == [
        "the certificate was replaced, and the one before is shown on",
        f"the certificate in {shown} was replaced",
        "the certificate was replaced, and the one before is shown on",
    ]
    assert ended.code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--certificate-key", "x.key"), "needs --certificate"),
        (("--certificate", "missing.pem"), "--certificate missing.pem: No such file"),
        (("--trusted-proxies", "example.org"), "trusted proxies"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(program: Program, arguments: tuple[str, ...], reason: str) -> None:
    ended = program.run_process("serve", "--port", "0", *arguments)
    assert ended.code == 2
    assert reason in ended.err


# ── logs and limits ──


def test_requests_are_logged_when_that_is_asked_for(program: Program) -> None:
    with serving(program, "--access-log", "--trusted-proxies", "127.0.0.1") as (process, url):
        httpx.get(f"{url}/health?secret=7", headers={"x-forwarded-for": "203.0.113.9"})
        ended = end(process, signal.SIGTERM)
    (line,) = [json.loads(line) for line in ended.err.splitlines()]
    assert (line["client"], line["path"], line["status"]) == ("203.0.113.9", "/health", 200)
    assert "secret" not in ended.err


def test_the_largest_body_can_be_set(program: Program) -> None:
    with serving(program, "--body-bytes-max", "2000") as (process, url):
        answer = httpx.post(f"{url}/api/v1/push", json={"items": [{"queue": "q", "payload": "x" * 3_000}]})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert ask(f"{url}/health")[0] == 200
        assert end(process, signal.SIGTERM).code == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POLL_WORKER_COUNT", "abc"),
        ("POLL_WORKER_COUNT", "0"),
        ("POLL_WORKER_COUNT", "-2"),
        ("POLL_INTERVAL_MS", "1.5"),
        ("POLL_INTERVAL_MS", ""),
        ("USE_PRIORITY_DISPATCH", "maybe"),
    ],
)
def test_variables_of_an_older_setup_that_make_no_sense_are_refused(program: Program, name: str, value: str) -> None:
    """S4-17."""
    ended = program.run("serve", "--port", "0", **{name: value})
    assert ended.code not in (0, None)
    assert f"{name} must be" in ended.err
    assert not (program.folder / "headwater.db").exists()


def test_variables_of_an_older_setup_are_accepted(program: Program) -> None:
    old = {"POLL_WORKER_COUNT": "20", "POLL_INTERVAL_MS": "100", "USE_PRIORITY_DISPATCH": "true"}
    with program.start("serve", "--port", "0", "--json", **old) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        ended = end(process, signal.SIGTERM)
    assert ended.code == 0
    assert [line for line in old if f"{line} is accepted" in ended.err] == list(old)
