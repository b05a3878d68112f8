"""`serve`: ready in one line, well, and gone in good order."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

import pytest

from tests.cli.program import Program, end


@contextmanager
def serving(program: Program, *arguments: str) -> Iterator[tuple["Popen[str]", str]]:
    """A server that said it is ready, and its address."""
    with program.start("serve", "--port", "0", "--json", *arguments) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        yield process, ready["url"]


def ask(url: str, method: str = "GET") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def connect(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10)


def wait_until_refused(url: str) -> None:
    """Until the server has begun to stop."""
    while True:
        try:
            connect(url).close()
        except ConnectionError:
            return


def test_a_server_makes_its_store_says_it_is_ready_and_answers(program: Program) -> None:
    with serving(program) as (process, url):
        assert json.loads(ask(f"{url}/health")[1]) == {"status": "ok", "version": "0.1.0", "store": "sqlite", "lsn": 0}
        assert ask(f"{url}/health", "HEAD") == (200, b"")
        assert json.loads(ask(f"{url}/version")[1]) == {"version": "0.1.0"}
        assert b"Headwater" in ask(f"{url}/")[1]
        status, body = ask(f"{url}/nope")
        assert (status, json.loads(body)["code"]) == (404, "not_found")
        program.expect(0, "push", "orders", "1")
        assert json.loads(ask(f"{url}/health")[1])["lsn"] == 1
        ended = end(process, signal.SIGTERM)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert program.store.stat().st_mode & 0o777 == 0o600


def test_one_line_says_that_it_is_ready_and_where(program: Program) -> None:
    with program.start("serve", "--port", "0", "--store", "orders.db") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("headwater 0.1.0 serves orders.db on http://127.0.0.1:")
        assert ask(f"{line.split()[-1]}/health")[0] == 200
        ended = end(process, signal.SIGINT)
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_a_stop_does_not_wait_for_connections_on_which_nothing_happens(program: Program) -> None:
    with serving(program) as (process, url), connect(url) as idle, connect(url):
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert idle.recv(1_000).startswith(b"HTTP/1.1 200")
        assert end(process, signal.SIGTERM).code == 0
        assert idle.recv(1) == b""


def test_a_second_signal_ends_it_at_once(program: Program) -> None:
    with serving(program) as (process, url), connect(url) as sending:
        head = b"POST /v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
        sending.sendall(head)
        assert sending.recv(1_000).startswith(b"HTTP/1.1 100")
        process.send_signal(signal.SIGTERM)
        wait_until_refused(url)
        assert process.poll() is None
        assert end(process, signal.SIGTERM).code == 0


def test_two_servers_share_a_store(program: Program) -> None:
    with serving(program) as (_, one), serving(program) as (_, two):
        assert [ask(f"{url}/health")[0] for url in (one, two)] == [200, 200]


def test_a_port_that_is_taken_is_told_in_one_line(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = program.expect_process(1, "serve", "--port", port)
        assert ended.err.startswith(f"error[port_taken]: port {port} at 127.0.0.1 is taken by another program")
        assert ended.err.count("\n") == 1
        assert program.expect_process(1, "serve", "--port", port, "--json").error()["code"] == "port_taken"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_nothing_but_this_machine_is_served_without_authentication(program: Program, host: str) -> None:
    ended = program.expect_process(2, "serve", "--host", host, "--port", "0")
    assert ended.err.startswith(f"error[not_loopback]: refusing to listen at {host}: there is no authentication")
    assert ended.err.count("\n") == 1
    assert list(program.folder.iterdir()) == []


def test_a_foreign_name_for_this_machine_is_refused(program: Program) -> None:
    with serving(program) as (_, url):
        request = urllib.request.Request(f"{url}/health", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        with refused.value as answer:
            assert (answer.code, json.loads(answer.read())["code"]) == (403, "host_not_allowed")
