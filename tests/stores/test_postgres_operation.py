"""What operators of a PostgreSQL server meet: roles, schemas, upgrades while others serve, what holds things up."""

import re
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

import headwater
from headwater.config import load_config
from headwater.errors import StoreFailed
from headwater.stores.migrations import Migration
from headwater.stores.open import open_reader, open_store
from headwater.stores.postgres import examination, migrate
from headwater.stores.postgres.address import parse_address
from tests.certificates import Certificate, make_certificate
from tests.cli.program import Program
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads
from tests.ports import free_port
from tests.postgres_server import USER, Server
from tests.postgres_server import server as server_of_this_process
from tests.tidy.tree import ROOT


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


@pytest.fixture
def schema(server: Server) -> str:
    return server.new_schema()


@pytest.fixture
def address(server: Server, schema: str) -> str:
    return server.address(schema)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


# What a client begins with that wants TLS: the length of it, and a number that is no version.
SSL_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")


async def opened(address: str) -> Log:
    store = open_store(address, load_config({}), FakeClock())
    await store.open()
    return Log(store, FakeClock())


# ── roles ──


@pytest.fixture
def role(server: Server, schema: str) -> Iterator[str]:
    """A role of the server that may do nothing, yet."""
    name = f"app {schema}"
    with server.connect() as owner:
        owner.execute(f'CREATE ROLE "{name}" LOGIN'.encode())
        yield name
        owner.execute(f'DROP OWNED BY "{name}"'.encode())
        owner.execute(f'DROP ROLE "{name}"'.encode())


def as_role(address: str, role: str) -> str:
    return address.replace(f"//{USER}@", f"//{role.replace(' ', '%20')}@")


def grant(program: Program, server: Server, address: str, *arguments: str) -> None:
    """Let a role use the store, as the command says."""
    program.expect(0, "push", "others", "1", "--store", address)
    lines = program.expect(0, "store", "grants", *arguments, "--store", address).lines()
    with server.connect() as owner:
        for line in lines:
            owner.execute(line.encode())


def test_a_role_with_what_is_printed_can_use_the_store_and_change_none_of_its_tables(
    program: Program, server: Server, address: str, schema: str, role: str
) -> None:
    grant(program, server, address, role)
    own = as_role(address, role)
    program.expect(0, "push", "orders", "1", "--store", own)
    assert program.expect(0, "pop", "orders", "--json", "--store", own).document()["payload"] == 1
    program.expect(0, "jobs", "enqueue", '{"id": "a", "command": "true"}', "--store", own)
    program.expect(0, "queues", "configure", "orders", "retention_seconds=60", "--store", own)
    assert program.expect(0, "doctor", "--json", "--store", own).document()["problems"] == []
    about = f"host={server.folder} dbname=postgres"
    with psycopg.Connection.connect(about, user=role, autocommit=True) as connection:
        for forbidden in (
            "DROP TABLE {0}.hw_segments",
            "CREATE TABLE {0}.mine ()",
            "ALTER TABLE {0}.hw_meta ADD x int",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.format(schema).encode())


def test_a_role_that_comes_before_the_owner_with_a_new_version_is_told_who_has_to_open_the_store(
    program: Program, server: Server, address: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(program, server, address, role)
    own = as_role(address, role)
    known = migrate.migrations()
    version = known[-1].number
    newer = Migration(version + 1, "add_something", "ALTER TABLE hw_meta ADD COLUMN something int")
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, newer))
    refused = program.expect(3, "push", "orders", "1", "--json", "--store", own).error()
    assert refused["code"] == "store_older"
    assert f"tables of version {version}" in refused["message"]
    assert "open it once as its owner" in refused["message"]
    [problem] = program.expect(3, "doctor", "--json", "--store", own).document()["problems"]
    assert (problem["code"], "owner" in problem["remedy"]) == ("store_older", True)
    program.expect(0, "doctor", "--store", address)
    program.expect(0, "push", "orders", "1", "--store", own)


def test_a_role_without_rights_is_told_of_grants_on_one_line_and_not_of_files(
    program: Program, address: str, role: str
) -> None:
    program.expect(0, "push", "orders", "1", "--store", address)
    ended = program.expect(3, "doctor", "--json", "--store", as_role(address, role))
    [problem] = ended.document()["problems"]
    assert "headwater store grants" in problem["remedy"]
    assert "folder" not in problem["remedy"]
    assert "\n" not in problem["message"]


async def test_a_role_that_may_only_read_reads_the_log_and_writes_nothing(
    server: Server, address: str, role: str
) -> None:
    log = await opened(address)
    await log.push("seen")
    lines = await log.store.grants(role, reads_only=True)  # type: ignore[attr-defined]
    await log.store.close()
    with server.connect() as owner:
        for line in lines:
            owner.execute(line.encode())
    reader = open_reader(as_role(address, role), load_config({}))
    await reader.open()
    _, last = await reader.span()
    assert last == 1
    await reader.close()
    with pytest.raises(StoreFailed, match="may not do this"):
        async with headwater.open(as_role(address, role), housekeeping=False) as hw:
            await hw.queue("orders").push("mine")
    schema = parse_address(address).schema
    with psycopg.connect(parse_address(as_role(address, role)).conninfo, autocommit=True) as connection:
        assert connection.execute(f"SELECT count(*) FROM {schema}.hw_queues".encode()).fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT * FROM {schema}.hw_access_tokens".encode())


@pytest.mark.parametrize("role", ["", "public", "PUBLIC"])
def test_a_role_that_is_nobody_or_everybody_is_refused(program: Program, address: str, role: str) -> None:
    program.expect(0, "push", "orders", "1", "--store", address)
    assert "name the role" in program.expect(2, "store", "grants", role, "--store", address).err


def test_a_role_without_anything_is_told_that_it_may_not(program: Program, address: str, role: str) -> None:
    program.expect(0, "push", "others", "1", "--store", address)
    assert "may not do this" in program.expect(3, "push", "orders", "1", "--store", as_role(address, role)).err


def test_a_file_needs_no_grants(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert "chmod" in program.expect(2, "store", "grants", "app").err


# ── several stores, other parameters ──


async def test_stores_in_schemas_of_one_database_do_not_meet(server: Server) -> None:
    one, other = [await opened(server.address(server.new_schema())) for _ in range(2)]
    await one.push("of one")
    await other.push("of the other")
    assert [payloads(segment) for segment in await one.read()] == [["of one"]]
    assert [payloads(segment) for segment in await other.read()] == [["of the other"]]
    for log in (one, other):
        await log.store.close()


async def test_a_store_does_not_wait_for_the_lock_of_another_in_the_same_database(server: Server) -> None:
    first = server.new_schema()
    one, other = await opened(server.address(first)), await opened(server.address(server.new_schema()))
    with server.connect() as holder, holder.transaction():
        holder.execute("SELECT pg_advisory_xact_lock(1213678932, hashtext(%s))", (first,))
        await other.push("meanwhile")
    assert await other.drain() == ["meanwhile"]
    for log in (one, other):
        await log.store.close()


def test_parameters_of_tls_go_to_libpq_as_they_are() -> None:
    given = "sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&sslcert=c&sslkey=k&target_session_attrs=read-write"
    parsed = parse_address(f"postgresql://app@a.example,b.example/shop?{given}&schema=orders")
    passed = parse_qs(urlsplit(parsed.conninfo).query)
    assert {name: passed[name] for name in parse_qs(given)} == parse_qs(given)
    assert "schema" not in passed


async def test_a_server_without_tls_is_not_used_by_who_insists_on_it() -> None:
    """Over TCP, where it counts: the parameter is libpq's, and it reaches libpq."""
    made = Server(listen_addresses="127.0.0.1", port=str(free_port()))
    try:
        place = f"postgresql://{USER}@127.0.0.1:{made.port}/postgres"
        plain = await opened(f"{place}?sslmode=disable")
        await plain.store.close()
        with pytest.raises(StoreFailed, match="SSL"):
            await opened(f"{place}?sslmode=require")
    finally:
        made.stop()


class TlsInFront:
    """A port of 127.0.0.1 that speaks TLS as PostgreSQL does and passes everything on; it notes how connections came.

    The server of the wheel is built without TLS: what is tried is the side of the store.
    """

    def __init__(self, server: Server, certificate: Certificate) -> None:
        self._server = server
        self._context = certificate.server()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.came: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._meet, args=(self._listening.accept()[0],), daemon=True).start()

    def _meet(self, plain: socket.socket) -> None:
        with suppress(OSError), plain:
            asks_for_tls = plain.recv(len(SSL_REQUEST)) == SSL_REQUEST
            self.came.append("tls" if asks_for_tls else "plain")
            if not asks_for_tls:
                return
            plain.sendall(b"S")
            with (
                self._context.wrap_socket(plain, server_side=True) as near,
                socket.socket(socket.AF_UNIX) as far,
            ):
                far.connect(f"{self._server.folder}/.s.PGSQL.{self._server.port}")
                self._pass_on(near, far)

    def _pass_on(self, near: ssl.SSLSocket, far: socket.socket) -> None:
        """One thread for both ways: a TLS connection is not for two."""
        near.setblocking(False)
        while True:
            if not near.pending():
                select.select([near, far], [], [])
            with suppress(ssl.SSLWantReadError):
                read = near.recv(65_536)
                if not read:
                    return
                far.sendall(read)
            if select.select([far], [], [], 0)[0]:
                answer = far.recv(65_536)
                if not answer:
                    return
                near.setblocking(True)
                near.sendall(answer)
                near.setblocking(False)

    def close(self) -> None:
        """Meet nobody any more."""
        self._listening.close()


async def test_every_connection_of_a_store_goes_by_tls_to_a_server_that_is_trusted(
    server: Server, schema: str, tmp_path: Path
) -> None:
    trusted = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other")
    with closing(TlsInFront(server, trusted)) as front:
        place = f"postgresql://{USER}@127.0.0.1:{front.port}/postgres?schema={schema}&sslmode=verify-full"
        log = await opened(f"{place}&sslrootcert={trusted.shown}")
        await log.push("by tls")
        assert [payloads(segment) for segment in await log.read()] == [["by tls"]]
        await log.store.close()
        assert len(front.came) >= 2
        assert set(front.came) == {"tls"}
        with pytest.raises(StoreFailed, match="certificate"):
            await opened(f"{place}&sslrootcert={other.shown}")


# ── upgrades ──


FORBIDDEN = ("DROP ", "RENAME", "ALTER COLUMN", "TRUNCATE")
# Where bytes are kept is no server's matter; PostgreSQL before 16 does not take it with the column.
KEPT_OUTSIDE = re.compile(r"ALTER COLUMN (\w+) SET STORAGE EXTERNAL")
# A key may get one more column: statements of before still find their row by the others.
WIDER_KEYS = re.compile(r"DROP CONSTRAINT (\w+)_pkey, ADD PRIMARY KEY \(group_id, partition_id, version\)")


def test_scripts_only_add_so_that_servers_of_before_go_on() -> None:
    """What nobody uses any more is dropped by a later release, once no server of before is left."""
    folder = ROOT / "src/headwater/stores/postgres/migrations"
    for script in sorted(folder.glob("*.sql")):
        code = "\n".join(line for line in script.read_text().splitlines() if not line.lstrip().startswith("--"))
        code = KEPT_OUTSIDE.sub("", WIDER_KEYS.sub("", code))
        assert [word for word in FORBIDDEN if word in code.upper()] == [], script.name


async def test_a_server_goes_on_while_a_newer_one_brings_the_tables_up_to_date(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await opened(address)
    await before.push(1)
    known = migrate.migrations()
    number = known[-1].number + 1
    script = (
        "ALTER TABLE hw_segments ADD COLUMN note text NOT NULL DEFAULT '';"
        "ALTER TABLE hw_cursors ADD COLUMN note text;"
        "CREATE TABLE hw_notes (id int8 PRIMARY KEY);"
    )
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, Migration(number, "add_notes", script)))
    after = await opened(address)
    await after.push(2)
    await before.push(3)
    assert await before.drain() == [1, 2, 3]
    assert [payloads(segment) for segment in await after.read()] == [[1], [2], [3]]
    for log in (before, after):
        await log.store.close()


# ── what holds things up ──


@contextmanager
def open_transaction(server: Server, application: str) -> Iterator[int]:
    """Somebody reads, and forgets to end it."""
    about = f"host={server.folder} user={USER} dbname=postgres application_name={application}"
    with psycopg.Connection.connect(about) as connection:
        connection.execute("SELECT 1")
        yield connection.info.backend_pid


def test_the_doctor_names_a_transaction_that_holds_things_up(
    program: Program, server: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.expect(0, "push", "orders", "1", "--store", address)
    monkeypatch.setattr(examination, "LONG_SECONDS", 0.0)
    with open_transaction(server, "reports") as pid:
        found = program.expect(5, "doctor", "--store", address).out
    said = " ".join(found.split())
    assert "a transaction has been open for" in said
    assert f"process {pid} of {USER}, reports, idle in transaction" in said
    assert f"SELECT pg_terminate_backend({pid})" in said
    assert program.expect(0, "doctor", "--json", "--store", address).document()["problems"] == []


def test_a_short_transaction_is_nothing_to_tell_of(program: Program, server: Server, address: str) -> None:
    program.expect(0, "push", "orders", "1", "--store", address)
    with open_transaction(server, "reports"):
        assert program.expect(0, "doctor", "--json", "--store", address).document()["problems"] == []


async def test_tables_whose_rows_change_all_the_time_are_cleared_early(server: Server, address: str) -> None:
    log = await opened(address)
    await log.store.close()
    with server.connect() as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' "
            "AND array_to_string(reloptions, ',') LIKE '%%autovacuum_vacuum_scale_factor%%'",
            (address.rpartition("=")[2],),
        ).fetchall()
    often = {
        "hw_cursors",
        "hw_jobs",
        "hw_job_counts",
        "hw_job_tallies",
        "hw_ready_floors",
        "hw_workers",
        "hw_job_lanes",
        "hw_meta",
        "hw_segments",
    }
    assert often <= {name for (name,) in rows}
