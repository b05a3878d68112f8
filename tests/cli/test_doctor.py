"""`doctor`: it finds what was planted, says what to do, and changes nothing."""

import os
import re
import subprocess

import apsw
import pytest

import headwater
import headwater.sync
from headwater.cli.diagnosis import FileFact, PlaceFacts, StoreFacts, judge
from headwater.cli.examination import filesystem_of
from tests.cli.program import Ended, Program
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_process

WELL = StoreFacts(
    kind="sqlite",
    engine="SQLite",
    schema_version=1,
    durable_by="fdatasync",
    durability="synced",
    wakeup="inotify",
    pages=1_000,
    page_bytes=4_096,
    free_pages=0,
    auto_vacuum="incremental",
    journal_mode="wal",
    wal_bytes=0,
    wal_bytes_max=1_000_000,
    wal_pinned_pages=0,
    last_lsn=0,
    queues=0,
)
PLACE = PlaceFacts("/data/a.db", (FileFact("/data/a.db", 1, 0o600, 7),), "/data", 0o700, "ext4", 10**9)


def problems(ended: Ended) -> list[str]:
    return [problem["code"] for problem in ended.document()["problems"]]


def test_a_healthy_store_is_well_and_its_facts_are_told(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    shown = program.expect(0, "doctor").out
    for fact in ("SQLite 3.", "schema version", "fdatasync", "inotify", "auto_vacuum", "0600", "pinned", "a record"):
        assert fact in shown
    assert shown.endswith("all is well\n")
    document = program.expect(0, "doctor", "--full", "--json").document()
    assert (document["healthy"], document["problems"], document["store"]["last_lsn"]) == (True, [], 1)
    assert document["config"]["encryption_key"] is False


def test_a_key_is_never_shown(program: Program) -> None:
    key = "ab" * 32
    program.expect(0, "push", "orders", "1")
    for arguments in (["doctor"], ["doctor", "--json"]):
        ended = program.expect(0, *arguments, HEADWATER_ENCRYPTION_KEY=key)
        assert key not in ended.out + ended.err


def test_a_store_that_others_may_read_is_a_problem_with_a_remedy_that_works(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    program.store.chmod(0o644)
    ended = program.expect(5, "doctor", "--json")
    assert problems(ended) == ["permissions"]
    remedy = ended.document()["problems"][0]["remedy"]
    assert remedy.startswith("chmod 600 ")
    shown = program.expect(5, "doctor").out
    assert re.search(r"^1 problem$", shown, re.MULTILINE)
    assert "remedy: chmod 600 " in shown
    # The other files of the store are gone with the command that used them.
    subprocess.run(remedy.split(), check=False, stderr=subprocess.DEVNULL)
    program.expect(0, "doctor")


def test_a_folder_that_others_may_write_to_is_a_problem(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    program.folder.chmod(0o777)
    assert problems(program.expect(5, "doctor", "--json")) == ["folder_permissions"]


def test_a_changed_record_is_found_when_everything_is_read(program: Program) -> None:
    program.expect(0, "push", "orders", '"needle"')
    content = program.store.read_bytes()
    assert content.count(b"needle") == 1
    program.store.write_bytes(content.replace(b"needle", b"noodle"))
    assert problems(program.expect(0, "doctor", "--json")) == []
    assert problems(program.expect(5, "doctor", "--full", "--json")) == ["damaged"]


def test_damaged_pages_are_found(program: Program) -> None:
    program.expect_process(
        0, "push", "orders", given=b"".join(b'"%s"\n' % os.urandom(3_000).hex().encode() for _ in range(200))
    )
    content = bytearray(program.store.read_bytes())
    middle = len(content) // 2 // 4_096 * 4_096
    content[middle : middle + 65_536] = b"\xa5" * 65_536
    program.store.write_bytes(content)
    ended = program.run("doctor", "--json")
    assert ended.code in (3, 5)
    assert set(problems(ended)) <= {"damaged", "store_damaged"}
    assert problems(ended)
    assert program.store.read_bytes() == content


def test_a_file_that_cannot_be_opened_is_reported_and_left_alone(program: Program) -> None:
    for content, code in ((b"nonsense" * 1_000, "store_damaged"), (foreign_file(program), "store_foreign")):
        program.store.write_bytes(content)
        ended = program.expect(3, "doctor", "--json")
        assert problems(ended)[0] == code
        assert ended.document()["store"] is None
        assert program.store.read_bytes() == content
    assert "remedy: " in program.expect(3, "doctor").out


def foreign_file(program: Program) -> bytes:
    path = program.folder / "foreign.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE accounts (id)")
    connection.close()
    return path.read_bytes()


def test_a_store_of_a_newer_version_is_told_to_be_one(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    connection = apsw.Connection(str(program.store))
    connection.execute("UPDATE hw_meta SET value = 9999 WHERE key = 'schema_version'")
    connection.close()
    assert problems(program.expect(3, "doctor", "--json"))[0] == "store_newer"
    assert program.expect(3, "queues").err.startswith("error[store_newer]: ")


@pytest.mark.parametrize("make", [False, True])
def test_a_missing_or_empty_store_is_not_made(program: Program, make: bool) -> None:
    if make:
        program.store.touch()
    before = [(path.name, path.stat().st_size) for path in program.folder.iterdir()]
    assert program.expect(3, "doctor").err.startswith("error[store_missing]: ")
    assert [(path.name, path.stat().st_size) for path in program.folder.iterdir()] == before


def test_a_reader_that_pins_the_log_is_found(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    reader = apsw.Connection(str(program.store))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM hw_segments").fetchall()
    lines = b"".join(b'"%s"\n' % os.urandom(20_000).hex().encode() for _ in range(200))
    program.expect_process(0, "push", "orders", given=lines)
    ended = program.expect(5, "doctor", "--json")
    reader.close()
    assert problems(ended) == ["wal_pinned"]
    assert ended.document()["store"]["wal_pinned_pages"] > 1_000


async def test_a_file_shared_with_an_application_is_told_about_its_vacuum(program: Program) -> None:
    program.store.write_bytes(foreign_file(program))
    program.store.chmod(0o600)
    async with headwater.open(str(program.store), adopt=True) as hw:
        await hw.queue("orders").push(1)
    assert problems(program.expect_process(5, "doctor", "--json")) == ["auto_vacuum"]


def test_an_encrypted_queue_without_its_key_is_a_problem(program: Program) -> None:
    key = {"HEADWATER_ENCRYPTION_KEY": "ab" * 32}
    program.expect(0, "push", "other", "1")
    program.expect(0, "queues", "configure", "orders", "encrypted=true", **key)
    program.expect(0, "push", "orders", "1", **key)
    program.expect(0, "doctor", **key)
    assert problems(program.expect(5, "doctor", "--json")) == ["encryption_key"]
    (told,) = program.expect(5, "doctor", "--json", HEADWATER_ENCRYPTION_KEY="cd" * 32).document()["problems"]
    assert told["code"] == "encryption_key"
    assert told["message"] == "the key that is set is not that of encrypted queues: orders"


def test_a_wrong_key_is_told_of_for_the_queues_of_every_database(program: Program) -> None:
    program.expect(0, "push", "other", "1")
    with headwater.sync.open(str(program.store), encryption_key="ab" * 32) as hw:
        hw.database("acme").queue("orders").configure(encrypted=True)
    assert problems(program.expect(5, "doctor", "--json")) == ["encryption_key"]
    assert problems(program.expect(5, "doctor", "--json", HEADWATER_ENCRYPTION_KEY="cd" * 32)) == ["encryption_key"]
    assert problems(program.expect(0, "doctor", "--json", HEADWATER_ENCRYPTION_KEY="ab" * 32)) == []


def test_a_weaker_durability_is_a_problem(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert problems(program.expect(5, "doctor", "--json", HEADWATER_DURABILITY="written")) == ["durability"]


@pytest.mark.parametrize(
    ("place", "store", "code"),
    [
        (PLACE._replace(filesystem="nfs4"), WELL, "network_filesystem"),
        (PLACE._replace(filesystem="tmpfs"), WELL, "memory_filesystem"),
        (PLACE._replace(files=(*PLACE.files, FileFact("/data/a.db-wal", 1, 0o600, 8))), WELL, "owners"),
        (PLACE._replace(disk_free_bytes=1_000), WELL, "disk_nearly_full"),
        (PLACE, WELL._replace(wal_bytes=5_000_000), "wal_large"),
        (PLACE, WELL._replace(pages=100_000, free_pages=90_000), "free_pages"),
        (PLACE, WELL._replace(damage=("page 7",)), "damaged"),
    ],
)
def test_each_thing_that_is_wrong_has_its_problem(place: PlaceFacts, store: StoreFacts, code: str) -> None:
    [problem] = judge(place, store)
    assert problem.code == code
    assert problem.remedy


def test_nothing_is_wrong_with_a_store_that_is_well() -> None:
    assert judge(PLACE, WELL) == []
    assert judge(PLACE._replace(folder_mode=0o1777), WELL) == []
    assert judge(PLACE._replace(disk_free_bytes=None, filesystem=""), WELL) == []


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:40 / /mnt/my\\040data rw shared:1 - nfs4 server:/x rw\n"
        "3 1 0:41 / /mnt/my\\040database rw - xfs /dev/sdb rw\n"
        "4 1 0:42 / /mnt rw - tmpfs tmpfs rw\n"
    )
    assert filesystem_of("/mnt/my data/a", mounts) == "nfs4"
    assert filesystem_of("/mnt/my database", mounts) == "xfs"
    assert filesystem_of("/mnt/other", mounts) == "tmpfs"
    assert filesystem_of("/srv", mounts) == "ext4"
    assert filesystem_of("/srv", "") == ""


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_process()


def test_a_store_on_a_server_is_examined_without_files(program: Program, server: Server) -> None:
    address = server.address(server.new_schema())
    program.expect(0, "push", "orders", "1", "--store", address)
    shown = program.expect(0, "doctor", "--store", address).out
    assert "PostgreSQL" in shown
    assert "files" not in shown
    document = program.expect(0, "doctor", "--full", "--json", "--store", address).document()
    assert (document["problems"], document["store"]["last_lsn"], document["place"]["files"]) == ([], 1, [])
