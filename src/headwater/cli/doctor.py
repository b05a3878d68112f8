"""`headwater doctor`: looks at a store and says what is wrong with it and what to do."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command
from headwater.cli.diagnosis import PlaceFacts, Problem, StoreFacts, judge, judge_error
from headwater.cli.exits import ExitCode
from headwater.cli.output import plural, print_facts, print_line, progress, show_bytes, show_seconds
from headwater.cli.session import opened, store_location
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.config import Config


class Diagnosis:
    """What was found: the place, the store if it could be opened, and what is wrong."""

    def __init__(self, place: PlaceFacts, config: "Config") -> None:
        self.place = place
        self.config = config
        self.store: StoreFacts | None = None
        self.problems: list[Problem] = []
        self.opened = False


@command
async def doctor(
    settings: Settings,
    full: Annotated[bool, typer.Option("--full", help="Read every record and check its checksum, too.")] = False,
) -> Result:
    """Examine the store: is it whole, is it safe, what is in force, what is wrong and what to do about it.

    No message is touched, and a store that is missing is not made. Exit code 0 says that all is well, 5 that there are
    problems, 3 that the store cannot be opened.

    Examples:
      headwater doctor
      headwater doctor --full --store orders.db
      headwater doctor --json
    """
    found = await _examine(settings, full)
    examined = ExitCode.PROBLEMS if found.problems else ExitCode.OK
    code = examined if found.opened else ExitCode.STORE
    return Result([diagnosis_document(found)], lambda: show_diagnosis(found), code=code)


async def _examine(settings: Settings, full: bool) -> Diagnosis:
    from headwater.cli.examination import examine_place
    from headwater.config import load_config
    from headwater.errors import HeadwaterError

    config = load_config()
    location = _location(settings)
    found = Diagnosis(examine_place(location), config)
    try:
        await _examine_open(settings, found, full)
    except HeadwaterError as error:
        found.problems = [judge_error(error, location), *judge(found.place, None)]
    else:
        found.opened = True
    return found


def _location(settings: Settings) -> str:
    """Where the store is; an error when there is none, for then there is nothing to examine."""
    from headwater.cli.examination import is_file
    from headwater.errors import StoreMissing

    location = store_location(settings)
    if not is_file(location):
        return location
    if not os.path.exists(location):
        raise StoreMissing(f"there is no store at {location}")
    if os.path.isfile(location) and not os.path.getsize(location):
        raise StoreMissing(f"{location} is an empty file; the first push or serve makes a store of it")
    return location


async def _examine_open(settings: Settings, found: Diagnosis, full: bool) -> None:
    from headwater.cli.examination import examine_place, examine_store, read_everything

    async with opened(settings) as hw:
        found.place = examine_place(found.place.location)
        store = await examine_store(hw)
        if full and not store.damage:
            with progress("reading every record", store.last_lsn, shown=not settings.json) as tell:
                unreadable = await read_everything(hw, tell)
            store = store._replace(damage=tuple(f"LSN {one.lsn}: {one.reason}" for one in unreadable))
        found.store = store
        found.problems = judge(found.place, store)


# ── how it is shown ──


def diagnosis_document(found: Diagnosis) -> dict[str, object]:
    """What was found, for programs."""
    import msgspec

    config = msgspec.structs.asdict(found.config)
    # Whether there is a key is a fact; the key is a secret.
    config["encryption_key"] = bool(found.config.encryption_key)
    config["wakeup_redis"] = bool(found.config.wakeup_redis)
    files = [{**file._asdict(), "mode": f"{file.mode:04o}"} for file in found.place.files]
    place = {**found.place._asdict(), "files": files, "folder_mode": f"{found.place.folder_mode:04o}"}
    return {
        "healthy": not found.problems,
        "problems": [problem._asdict() for problem in found.problems],
        "place": place,
        "store": None if found.store is None else _store_document(found.store),
        "config": config,
    }


def _store_document(store: StoreFacts) -> dict[str, object]:
    document = {**store._asdict(), **dict(store.others)}
    del document["others"]
    return document


def show_diagnosis(found: Diagnosis) -> None:
    """What was found, for people: facts first, then what is wrong."""
    print_facts([*_place_facts(found.place), *_store_facts(found.store), *_config_facts(found.config)])
    print_line(("", ""))
    if not found.problems:
        print_line(("all is well", "bold green"))
        return
    print_line((plural(len(found.problems), "problem"), "bold red"))
    for problem in found.problems:
        print_line((f"  {problem.code}: ", "red"), (problem.message, ""))
        print_line(("    remedy: ", "green"), (problem.remedy, ""))
    sys.stdout.flush()


def _place_facts(place: PlaceFacts) -> list[tuple[str, object]]:
    if not place.folder:
        return [("location", place.location)]
    files = [f"{os.path.basename(file.path)} {show_bytes(file.bytes)} {file.mode:04o}" for file in place.files]
    free = "" if place.disk_free_bytes is None else f", {show_bytes(place.disk_free_bytes)} free"
    return [
        ("location", place.location),
        ("files", files),
        ("disk", f"{place.filesystem or 'unknown file system'}{free}"),
    ]


def _store_facts(store: StoreFacts | None) -> list[tuple[str, object]]:
    if store is None:
        return [("store", "cannot be opened")]
    return [
        ("store", f"{store.kind} ({store.engine}), schema version {store.schema_version}"),
        ("identity", store.identity),
        ("contents", f"{plural(store.queues, 'queue')}, last LSN {store.last_lsn:,}"),
        ("durability", f"{store.durability}, by {store.durable_by}"),
        ("wake-up", store.wakeup),
        *_page_facts(store),
        *((name.replace("_", " "), value) for name, value in store.others),
        ("integrity", "damaged" if store.damage else "ok"),
    ]


def _page_facts(store: StoreFacts) -> list[tuple[str, object]]:
    """Of a store that has pages and a log of them."""
    if not store.pages:
        return []
    free = f"{plural(store.free_pages, 'free page')}"
    return [
        ("pages", f"{store.pages:,} of {show_bytes(store.page_bytes)}, {free}, auto_vacuum {store.auto_vacuum}"),
        ("write-ahead log", _show_wal(store)),
    ]


def _show_wal(store: StoreFacts) -> str:
    size = f"{show_bytes(store.wal_bytes)}, starts over from {show_bytes(store.wal_bytes_max)}"
    return f"{size}, {plural(store.wal_pinned_pages, 'page')} pinned by readers"


def _config_facts(config: "Config") -> list[tuple[str, object]]:
    records = f"{show_bytes(config.record_bytes_max)} a record, {config.batch_max:,} records a batch"
    waiting = f"{config.waiters_max:,} waiting pops of {show_seconds(config.wait_seconds_max)}"
    chores = f"every {show_seconds(config.housekeeping_seconds)}" if config.housekeeping else "off"
    return [
        ("limits", f"{records}, {show_bytes(config.batch_bytes_max)} a push, {waiting}"),
        ("chores", chores),
        ("encryption key", "set" if config.encryption_key else "not set"),
    ]
