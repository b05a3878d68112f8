"""Every interface shows the same arguments, by name: nothing hides in `**options`, nothing is only in one of them."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.client.client import Client
from headwater.model.queue import QueueOptions

# The settings of a store are those of `Config`; beside them `open` takes what is no setting.
OPEN_ONLY = {"store", "database", "adopt", "create", "clock", "rooms"}


def arguments(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """The arguments of a call, `self` aside: names, kinds and defaults."""
    found = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


def names(call: Callable[..., Any]) -> set[str]:
    return {name for name, _, _ in arguments(call)}


def verbs(kind: type) -> Iterator[str]:
    """The public calls of a class."""
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_") and callable(value) and not isinstance(value, type):
            yield name


INTERFACES = [
    (headwater.Queue, headwater.sync.Queue),
    (headwater.Database, headwater.sync.Database),
    (headwater.Headwater, headwater.sync.Headwater),
    (headwater.Message, headwater.sync.Message),
]
# What only one loop has a use for: the sync interface is open when it is made, and has other names for its own things.
ASYNC_ONLY = {"start", "access_tokens"}


@pytest.mark.parametrize(
    ("spoken", "plain"), INTERFACES, ids=lambda interface: f"{interface.__module__}.{interface.__name__}"
)
def test_the_sync_face_has_the_verbs_and_the_arguments_of_the_async_one(spoken: type, plain: type) -> None:
    missing = set(verbs(spoken)) - set(verbs(plain)) - ASYNC_ONLY
    assert not missing
    for name in set(verbs(spoken)) - ASYNC_ONLY:
        assert arguments(getattr(plain, name)) == arguments(getattr(spoken, name)), name


# What the library is made of, which people do not hold: it belongs to the loop.
PARTS = {"life", "queues_service", "jobs_service", "service", "check_all", "store", "committer", "tail", "wakeup"}
PARTS |= {"clock", "keeper", "sentinel", "log_reading", "followers", "rooms_service", "push_of"}


async def test_the_sync_face_has_everything_that_the_async_one_shows(tmp_path: Path) -> None:
    """Attributes as well as verbs, of everything that can be held; and those that tell something tell the same."""
    async with headwater.open(str(tmp_path / "async.db")) as hw:
        with headwater.sync.open(str(tmp_path / "sync.db")) as plain:
            await hw.queue("orders").push(1)
            await asyncio.to_thread(plain.queue("orders").push, 1)
            pairs: list[tuple[Any, Any]] = [
                (hw, plain),
                (hw.database("tenant"), plain.database("tenant")),
                (hw.queue("orders"), plain.queue("orders")),
                (hw.room("canvas-1"), plain.room("canvas-1")),
                (hw.jobs, plain.jobs),
                (await hw.jobs.add(id="a", type="x:y"), await asyncio.to_thread(plain.jobs.add, id="a", type="x:y")),
                ((await hw.queue("orders").pop())[0], (await asyncio.to_thread(plain.queue("orders").pop))[0]),
            ]
            for spoken, bare in pairs:
                shown = {name for name in dir(spoken) if not name.startswith("_")} - PARTS - ASYNC_ONLY
                assert shown <= set(dir(bare)), type(spoken)
                for name in shown:
                    value = getattr(spoken, name)
                    if isinstance(value, str | int | bool) and name != "token":
                        assert getattr(bare, name) == value, (type(spoken), name)


def test_a_client_has_the_verbs_of_a_database() -> None:
    for name in verbs(headwater.Database):
        assert arguments(getattr(Client, name)) == arguments(getattr(headwater.Database, name)), name


@pytest.mark.parametrize("name", ["open", "connect"])
def test_what_opens_a_face_takes_the_same_arguments(name: str) -> None:
    assert arguments(getattr(headwater.sync, name)) == arguments(getattr(headwater, name))


def test_open_and_asgi_name_every_setting() -> None:
    settings = set(headwater.Config.__struct_fields__)
    assert names(headwater.open) == settings | OPEN_ONLY
    assert names(headwater.asgi) == settings | OPEN_ONLY | {"access"}


def test_configure_names_every_option_of_a_queue() -> None:
    assert names(headwater.Queue.configure) == {*QueueOptions.__struct_fields__, "namespace", "task"}


def test_a_push_in_a_transaction_says_what_a_push_says() -> None:
    apart = {"durability", "idempotency_key"}
    assert names(headwater.Together.push) - {"queue"} == names(headwater.Queue.push) - apart


def test_what_pops_takes_the_same_options() -> None:
    shared = {"group", "batch", "lease_seconds", "auto_ack", "subscribe", "since"}
    for call in (headwater.Queue.pop, headwater.Database.pop, headwater.Queue.consume):
        assert shared <= names(call), call
    assert shared - {"auto_ack"} <= names(headwater.Queue.run)


PUBLIC = [
    headwater.open,
    headwater.connect,
    headwater.asgi,
    headwater.sync.open,
    headwater.sync.connect,
    *(
        getattr(interface, name)
        for interface in (
            headwater.Queue,
            headwater.Database,
            headwater.Headwater,
            headwater.Together,
            headwater.Message,
        )
        for name in verbs(interface)
        if interface is not headwater.Together or name != "enqueue"
    ),
]


@pytest.mark.parametrize("call", PUBLIC, ids=lambda call: call.__qualname__)
def test_no_public_call_takes_arguments_without_naming_them(call: Callable[..., Any]) -> None:
    kinds = {one.kind for one in inspect.signature(call).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


@pytest.mark.parametrize("call", PUBLIC, ids=lambda call: call.__qualname__)
def test_every_public_call_says_what_it_does(call: Callable[..., Any]) -> None:
    assert inspect.getdoc(call)
