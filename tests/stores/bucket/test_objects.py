"""Buckets as the protocol needs them, in a folder and on a real S3 server: one creator wins, none replaces blindly."""

import asyncio
import fcntl
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.errors import ConfigError, StoreFailed, StoreFull, StoreMissing
from headwater.stores.bucket.folder import FolderObjects
from headwater.stores.bucket.objects import CountedObjects, Found, Objects, Refused, Silence, Unsure
from headwater.stores.bucket.s3 import S3Objects, find_endpoint
from tests.ports import free_port
from tests.seaweed_server import BUCKET, SeaweedServer, environment_for

RACERS = 8


@pytest.fixture(params=["folder", "s3"])
def prefix(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "" if request.param == "folder" else f"{tmp_path.name}/"


@pytest.fixture
def objects(prefix: str, tmp_path: Path, seaweed: SeaweedServer) -> Iterator[Objects]:
    made: Objects = S3Objects(BUCKET, seaweed.environment) if prefix else FolderObjects(str(tmp_path))
    yield made
    made.close()


async def test_an_object_is_created_once_and_read_back(objects: Objects, prefix: str) -> None:
    key = f"{prefix}a.sqlite-log/000000000001"
    assert await objects.get(key) is None
    tag = await objects.create(key, b"first")
    with pytest.raises(Refused):
        await objects.create(key, b"second")
    found = await objects.get(key)
    assert found is not None
    assert found == (b"first", tag)
    head = await objects.head(key, 3)
    assert head is not None
    assert head == (b"fir", tag)
    assert await objects.head(key, 3_000) == found
    assert await objects.head(f"{prefix}none", 3_000) is None
    assert objects.peek(key, 3) == head
    assert objects.peek(f"{prefix}none", 3) is None


async def test_of_many_who_create_one_object_at_once_one_wins(objects: Objects, prefix: str) -> None:
    """T2-f."""
    for number in range(10):
        key = f"{prefix}race/{number}"
        tries = [objects.create(key, b"%d" % racer) for racer in range(RACERS)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        won = [racer for racer, answer in enumerate(answers) if isinstance(answer, str)]
        assert len(won) <= 1
        found = await objects.get(key)
        assert found is not None
        # Told as refused to all, an object may still be the one that a first try of the library brought.
        assert not won or found.data == b"%d" % won[0]


async def test_only_who_knows_the_version_replaces_it(objects: Objects, prefix: str) -> None:
    key = f"{prefix}base.sqlite"
    first = await objects.create(key, b"one")
    second = await objects.replace(key, b"two", first)
    assert second != first
    with pytest.raises(Refused):
        await objects.replace(key, b"three", first)
    found = await objects.get(key)
    assert found == (b"two", second)


async def test_of_many_who_replace_one_version_one_wins(objects: Objects, prefix: str) -> None:
    """S2-5."""
    key = f"{prefix}contended.sqlite"
    tag = await objects.create(key, b"-")
    tries = [objects.replace(key, b"%d" % racer, tag) for racer in range(RACERS)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert all(isinstance(answer, str | Refused) for answer in answers)


async def test_what_is_not_there_cannot_be_replaced(objects: Objects, prefix: str) -> None:
    with pytest.raises(Refused):
        await objects.replace(f"{prefix}none.sqlite", b"-", '"0123"')


async def test_names_are_listed_in_order_and_deleted(objects: Objects, prefix: str) -> None:
    keys = [f"{prefix}b.sqlite-log/{number:012d}" for number in (3, 1, 2)]
    for key in keys:
        await objects.create(key, b"-")
    await objects.create(f"{prefix}b.sqlite", b"-")
    assert await objects.names(f"{prefix}b.sqlite-log/") == sorted(keys)
    await objects.delete([keys[0], keys[1], f"{prefix}b.sqlite-log/none"])
    assert await objects.names(f"{prefix}b.sqlite-log/") == [keys[2]]
    await objects.delete([])


async def test_what_was_asked_is_counted(objects: Objects, prefix: str) -> None:
    counted = CountedObjects(objects)
    tag = await counted.create(f"{prefix}c", b"four")
    await counted.replace(f"{prefix}c", b"seven77", tag)
    await counted.get(f"{prefix}c")
    await counted.names(f"{prefix}c")
    await counted.delete([f"{prefix}c"])
    traffic = counted.traffic
    assert (traffic.puts, traffic.gets, traffic.lists, traffic.deletes) == (2, 1, 1, 1)
    assert (traffic.bytes_sent, traffic.bytes_read) == (11, 7)


# ── the folder ──


CREATE_ALL = """
import asyncio, json, sys
from headwater.stores.bucket.folder import FolderObjects
from headwater.stores.bucket.objects import Refused

async def create_all(folder, name):
    objects, mine = FolderObjects(folder), []
    for number in range(100):
        try:
            await objects.create(f"log/{number}", name.encode())
        except Refused:
            continue
        mine.append(number)
    objects.close()
    return mine

print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(asyncio.run(create_all(*sys.argv[1:]))))
"""


def test_of_processes_that_create_the_same_files_one_wins_each(tmp_path: Path) -> None:
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", CREATE_ALL, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two", "three")
    }
    for process in started.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = {name: json.loads(process.communicate(timeout=60)[0]) for name, process in started.items()}
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(100))
    for name, numbers in found.items():
        assert all((tmp_path / f"log/{number}").read_text() == name for number in numbers)


async def test_files_are_their_owners_and_none_is_left_half_written(tmp_path: Path) -> None:
    objects = FolderObjects(str(tmp_path))
    tag = await objects.create("log/1", b"-")
    with pytest.raises(Refused):
        await objects.create("log/1", b"-")
    with pytest.raises(Refused):
        await objects.replace("log/1", b"-", f"{tag}0")
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["1"]
    assert stat.S_IMODE((tmp_path / "log/1").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    objects.close()


async def test_a_lock_that_is_never_given_back_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder may be stopped. Whoever asks the folder knows as little then as of a bucket that does not answer, and
    what needs no lock is answered meanwhile."""
    monkeypatch.setattr("headwater.stores.bucket.folder.LOCK_SECONDS", 0.05)
    objects = CountedObjects(FolderObjects(str(tmp_path)))
    tag = await objects.create("a", b"1")
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        replacing = [asyncio.ensure_future(objects.replace("a", b"2", tag)) for _ in range(8)]
        refused = await asyncio.gather(*replacing, return_exceptions=True)
        assert [type(one) for one in refused] == [Unsure] * 8
        assert "locked" in str(refused[0])
        assert await objects.get("a") == Found(b"1", tag)
        assert objects.writes.seconds > 0
    await objects.replace("a", b"2", tag)
    assert objects.writes.seconds == 0
    objects.close()


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    objects = FolderObjects(str(tmp_path / "none"))
    with pytest.raises(StoreMissing, match="no folder"):
        await objects.create("a", b"-")
    objects.close()


# ── S3 ──


async def test_a_server_that_does_not_answer_leaves_everybody_unsure(seaweed: SeaweedServer) -> None:
    port = free_port()
    objects = S3Objects(BUCKET, environment_for(port), timeout_seconds=2)
    with pytest.raises(Unsure):
        await objects.create("a", b"-")
    with pytest.raises(Unsure):
        await objects.get("a")


@pytest.mark.parametrize("status", ["409 Conflict", "412 Precondition Failed", "500 Internal Server Error"])
async def test_a_server_that_refuses_a_plain_read_leaves_everybody_unsure(seaweed: SeaweedServer, status: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unsure) as told:
            await S3Objects(BUCKET, environment_for(port), timeout_seconds=2).get("a")
    assert status[:3] in str(told.value)
    assert "Debug source" not in str(told.value)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("507 Insufficient Storage", ""),
        ("403 Forbidden", "<Error><Code>QuotaExceeded</Code></Error>"),
        ("500 Internal Server Error", "<Error><Code>XMinioStorageFull</Code></Error>"),
    ],
)
async def test_a_server_without_room_says_so(seaweed: SeaweedServer, status: str, body: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreFull, match="is full"):
            await S3Objects(BUCKET, environment_for(port), timeout_seconds=2).create("a", b"-")


async def test_what_a_server_says_at_length_is_cut_between_words(seaweed: SeaweedServer) -> None:
    body = "denied " * 100

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreFailed, match=r"denied …$"):
            await S3Objects(BUCKET, environment_for(port), timeout_seconds=2).get("a")


async def test_a_wrong_secret_is_refused_for_good(seaweed: SeaweedServer) -> None:
    objects = S3Objects(BUCKET, {**seaweed.environment, "AWS_SECRET_ACCESS_KEY": "not-the-secret"})
    with pytest.raises(StoreFailed, match="does not allow") as told:
        await objects.create("a", b"-")
    assert "not-the-secret" not in str(told.value)


@pytest.mark.parametrize("endpoint", ["http://10.0.0.1:9000", "http://minio", "ftp://127.0.0.1", "127.0.0.1:9000"])
def test_plain_http_goes_to_this_machine_only(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL"):
        find_endpoint({"AWS_ENDPOINT_URL": endpoint})


@pytest.mark.parametrize("endpoint", ["", "https://minio.example", "http://127.0.0.1:9000", "http://localhost:1"])
def test_other_endpoints_are_taken_as_they_are(endpoint: str) -> None:
    assert find_endpoint({"AWS_ENDPOINT_URL": endpoint}) == endpoint


async def test_credentials_of_a_profile_are_found(seaweed: SeaweedServer, tmp_path: Path) -> None:
    given = seaweed.environment
    (tmp_path / "credentials").write_text(
        f"[default]\n[house]\naws_access_key_id = {given['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {given['AWS_SECRET_ACCESS_KEY']}\n"
    )
    (tmp_path / "config").write_text("[profile house]\nregion = eu-central-1\n")
    environment = {
        "AWS_ENDPOINT_URL": given["AWS_ENDPOINT_URL"],
        "AWS_PROFILE": "house",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    objects = S3Objects(BUCKET, environment)
    await objects.create(f"{tmp_path.name}/profile", b"-")
    with pytest.raises(ConfigError, match="AWS_PROFILE names 'default'"):
        S3Objects(BUCKET, {**environment, "AWS_PROFILE": "default"})


def test_a_bucket_is_silent_while_it_is_asked_and_answers_nothing() -> None:
    now = 0.0

    async def ask(outcome: Exception | None, size: int = 0) -> float:
        """For how long it has been silent, as seen 20 seconds into a call."""
        nonlocal now
        with suppress(type(outcome) if outcome else Unsure), silence.asking(size):
            now += 20.0
            seen = silence.seconds
            if outcome is not None:
                raise outcome
        return seen

    silence = Silence("write", lambda: now)
    assert asyncio.run(ask(Unsure())) == 20.0
    now += 1.0
    assert silence.seconds == 21.0
    # Asked again at once, it is the same silence; and what refuses has answered.
    assert asyncio.run(ask(StoreFull("no room"))) == 41.0
    assert silence.seconds == 0.0
    # What is large may take its time.
    assert asyncio.run(ask(Unsure(), size=100_000_000)) == 10.0
    # Nobody has asked for long: what was is not what is.
    now += 60.0
    assert silence.seconds == 0.0
    assert asyncio.run(ask(None)) == 20.0
    assert silence.seconds == 0.0
