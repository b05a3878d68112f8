"""Forks processes that write, kills them, and looks at what is left: run as a program of its own.

    python -m tests.faults.kill_rounds one FOLDER SEED ROUNDS      one writer at a time, killed each time
    python -m tests.faults.kill_rounds two FOLDER SEED ROUNDS      two writers at once, one of them killed

It forks, so it must have no threads; that is why the tests start it instead of doing this themselves. One line of JSON
says what was found. The same file is used for all rounds: it must stand all kills in a row.
"""

import asyncio
import itertools
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from headwater.model.record import decode_payload, split_records
from tests.faults.tables import find_damage, find_faults
from tests.faults.writing_process import Acked, Entry, Ledger, Popped, Pushed, Submitted, read_ledger, write

KILL_AFTER_SECONDS = (0.002, 0.022)
OPENED_SECONDS_MAX = 20.0
SURVIVOR_OPERATIONS = 150


class Found(msgspec.Struct):
    """What the rounds came to."""

    rounds: int = 0
    answered: int = 0
    faults: list[str] = []


class Child:
    """A forked writer; `opened` becomes readable when its store is open."""

    def __init__(self, folder: Path, name: str, operations: int | None = None) -> None:
        self.ledger = folder / f"{name}.ledger"
        self.opened, says_opened = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(folder, name, operations, says_opened)
        os.close(says_opened)

    def _live(self, folder: Path, name: str, operations: int | None, says_opened: int) -> None:
        """The child's whole life. It must not return into its parent's code, whatever happens."""
        code = 1
        try:
            told = lambda: os.close(says_opened)  # noqa: E731
            asyncio.run(write(folder / "store.db", Ledger(self.ledger), name, operations, told))
            code = 0
        except BaseException:
            # Nobody above will say it: what is above belongs to the parent.
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def wait_until_open(self) -> None:
        """The end of the pipe is the news: it also comes when the child has died."""
        if not select.select([self.opened], [], [], OPENED_SECONDS_MAX)[0]:
            raise TimeoutError("the child did not open its store")

    def kill(self) -> None:
        """End it without a warning."""
        os.kill(self.pid, signal.SIGKILL)
        self.join()

    def join(self) -> int:
        """How it ended."""
        os.close(self.opened)
        return os.waitpid(self.pid, 0)[1]


def kill_one(folder: Path, chance: random.Random, number: int) -> str:
    """One round: a writer, killed a little after it has begun or while it still opens the file."""
    child = Child(folder, f"writer{number}")
    if chance.random() < 0.8:
        child.wait_until_open()
    time.sleep(chance.uniform(*KILL_AFTER_SECONDS))
    child.kill()
    return ""


def kill_one_of_two(folder: Path, chance: random.Random, number: int) -> str:
    """One round: two writers under load, one killed; the other must end its work in order."""
    victim = Child(folder, f"victim{number}")
    survivor = Child(folder, f"survivor{number}", SURVIVOR_OPERATIONS)
    victim.wait_until_open()
    survivor.wait_until_open()
    time.sleep(chance.uniform(*KILL_AFTER_SECONDS))
    victim.kill()
    status = survivor.join()
    return f"the survivor of round {number} ended with {status}" if status else ""


def judge(folder: Path) -> Iterator[str]:
    """What is wrong with the file, seen by all ledgers there are."""
    entries: list[Entry] = []
    for path in sorted(folder.glob("*.ledger"), key=lambda path: path.stat().st_mtime_ns):
        entries += read_ledger(path)
    path = folder / "store.db"
    if not path.exists():
        yield from ["answered operations without a file"] if entries else []
        return
    connection = apsw.Connection(str(path))
    try:
        yield from find_damage(connection)
        yield from find_faults(connection)
        yield from judge_records(connection, entries)
        yield from judge_leases(entries)
        yield from judge_acks(connection, entries)
    finally:
        connection.close()


def kept_names(connection: apsw.Connection) -> dict[tuple[str, int], str]:
    """What is in the log, by partition and offset."""
    if not list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'hw_segments'")):
        return {}
    rows = connection.execute(
        "SELECT p.name, s.first_offset, s.records FROM hw_segments s JOIN hw_partitions p ON p.id = s.partition_id "
        "ORDER BY s.partition_id, s.first_offset"
    )
    return {
        (partition, first + index): decode_payload(record.data)
        for partition, first, body in rows
        for index, record in enumerate(split_records(body))
    }


def judge_records(connection: apsw.Connection, entries: list[Entry]) -> Iterator[str]:
    """Answered records are there, none twice, each producer's in its order, and none that nobody pushed."""
    kept = kept_names(connection)
    submitted = {(entry.partition, entry.name) for entry in entries if isinstance(entry, Submitted)}
    for entry in entries:
        if isinstance(entry, Pushed) and kept.get((entry.partition, entry.offset)) != entry.name:
            yield f"{entry.name} was answered at {entry.offset}; there is {kept.get((entry.partition, entry.offset))}"
    yield from (f"{name} is there {count} times" for name, count in Counter(kept.values()).items() if count > 1)
    yield from (f"nobody pushed {name}" for (place, _), name in kept.items() if (place, name) not in submitted)
    last: dict[tuple[str, str], int] = {}
    for (partition, _), name in kept.items():
        producer, _, number = name.rpartition(":")
        if int(number) <= last.get((partition, producer), 0):
            yield f"{name} is behind {last[partition, producer]}"
        last[partition, producer] = int(number)


def judge_leases(entries: list[Entry]) -> Iterator[str]:
    """Of two leases on the same record the later one begins when the earlier one is over, and has a higher token."""
    leases: dict[tuple[str, int], list[Popped]] = {}
    for entry in entries:
        if isinstance(entry, Popped):
            for offset in entry.offsets:
                leases.setdefault((entry.partition, offset), []).append(entry)
    for place, held in leases.items():
        held.sort(key=lambda lease: lease.token)
        for earlier, later in itertools.pairwise(held):
            if later.token == earlier.token or later.begun_at < earlier.lease_until:
                yield f"{place} was leased twice at once: {earlier} and {later}"


def judge_acks(connection: apsw.Connection, entries: list[Entry]) -> Iterator[str]:
    """What was acked is behind the cursor."""
    acked = [entry for entry in entries if isinstance(entry, Acked)]
    if not acked:
        return
    rows = connection.execute(
        "SELECT p.name, c.position, c.settled FROM hw_cursors c JOIN hw_partitions p ON p.id = c.partition_id"
    )
    positions = {name: (position, set(msgspec.json.decode(settled or "[]"))) for name, position, settled in rows}
    for entry in acked:
        position, settled = positions.get(entry.partition, (0, set()))
        again = [offset for offset in entry.offsets if offset >= position and offset not in settled]
        if again:
            yield f"{again} of {entry.partition} were acked and would come again: the cursor is at {position}"


def run_rounds(kind: str, folder: Path, seed: int, rounds: int) -> Found:
    """All rounds, until something is wrong."""
    chance = random.Random(seed)
    round_of = {"one": kill_one, "two": kill_one_of_two}[kind]
    found = Found(rounds=rounds)
    for number in range(rounds):
        wrong = round_of(folder, chance, number)
        found.faults = [*([wrong] if wrong else []), *judge(folder)]
        if found.faults:
            found.rounds = number
            break
    found.answered = sum(
        isinstance(entry, Pushed | Acked) for path in folder.glob("*.ledger") for entry in read_ledger(path)
    )
    return found


def main() -> None:
    """See the module."""
    kind, folder, seed, rounds = sys.argv[1:]
    found = run_rounds(kind, Path(folder), int(seed), int(rounds))
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
