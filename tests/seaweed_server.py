"""A real S3 server for tests: SeaweedFS from a wheel, on loopback, one for each test process.

It is started at first use and ends with the process. Its conditional PUTs are true ones (from 4.17 on), which those of
the usual stand-ins are not.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.parent_death import end_with_parent
from tests.ports import free_ports

WEED = Path(sys.executable).with_name("weed")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
STARTS_MAX = 5
PAUSE_SECONDS = 0.1
NAMES = ("master", "volume", "filer", "s3")
BUCKET = "headwater"
KEY, SECRET = "headwater", "headwater-not-a-secret"


class SeaweedServer:
    """A server that runs, with an empty bucket."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hwweed-", dir=_memory()))
        self._keys = count(1)
        # Somebody may take one of its ports before it gets there: then it is started with others.
        for _ in range(STARTS_MAX):
            self._start_with(free_ports(2 * len(NAMES)))
            if self._is_ready():
                return
            self._end()
            told = (self.folder / "log").read_text()
            if "address already in use" not in told:
                break
        raise RuntimeError(f"SeaweedFS did not start: {told[-2_000:]}")

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it has in its environment."""
        return environment_for(self.port)

    def new_key(self) -> str:
        """A name that no test has used here."""
        return f"t{next(self._keys)}/log.sqlite"

    def sleep(self) -> None:
        """It takes connections, as its system does for it, and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on as if nothing had been."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it for good."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start_with(self, found: Sequence[int]) -> None:
        ports = dict(zip(NAMES, found[: len(NAMES)], strict=True))
        grpc = dict(zip(NAMES, found[len(NAMES) :], strict=True))
        self.port = ports["s3"]
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        (self.folder / "data").mkdir()
        self._process = self._start(ports, grpc)

    def _start(self, ports: Mapping[str, int], grpc: Mapping[str, int]) -> "subprocess.Popen[bytes]":
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": KEY, "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        flags = [f"-{name}.port={port}" for name, port in ports.items()]
        flags += [f"-{name}.port.grpc={port}" for name, port in grpc.items()]
        places = [f"-dir={self.folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.ip.bind=127.0.0.1"]
        s3 = ["-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        sockets = [f"-s3.localSocket={self.folder}/s3.sock", f"-filer.localSocket={self.folder}/filer.sock"]
        more = ["-master.telemetry=false", "-master.volumeSizeLimitMB=1024", "-volume.max=20"]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [str(WEED), "-v=0", "server", *places, *flags, *s3, *sockets, *more],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=partial(end_with_parent, signal.SIGTERM),
            )

    def _is_ready(self) -> bool:
        """Wait until it can be written to, which makes the bucket, or has ended."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                store = S3Store(BUCKET, config=store_config(self.port), client_options={"allow_http": True})
                obstore.put(store, "first", b"-")
            except (BaseError, OSError):
                time.sleep(PAUSE_SECONDS)
            else:
                return True
        return False


def environment_for(port: int) -> dict[str, str]:
    """What a client of an S3 server on this port has in its environment."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


def store_config(port: int) -> Any:
    """The same for obstore."""
    config = {name.lower(): value for name, value in environment_for(port).items()}
    return {**config, "aws_virtual_hosted_style_request": "false"}


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


@cache
def server() -> SeaweedServer:
    """The server of this process."""
    started = SeaweedServer()
    pid = os.getpid()
    atexit.register(lambda: started.stop() if os.getpid() == pid else None)
    return started
