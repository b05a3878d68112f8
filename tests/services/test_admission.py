"""What may be handed in is decided in one place: the library, our own client and both ways over HTTP refuse alike."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.app import make_router
from headwater.config import Config
from headwater.doors.routes import Router
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError, InvalidInput, InvalidName
from headwater.log.flow_operations import Load
from headwater.log.group_operations import ConfigureGroup, ReleaseLeases
from headwater.log.job_operations import (
    CancelJobs,
    ChangeSchedule,
    DropJobs,
    Enqueue,
    NewJob,
    PauseJobs,
    PutSchedule,
    RegisterTypes,
    RetryJobs,
    SetJobConfig,
    SetJobLimit,
    StopWorkers,
)
from headwater.log.operations import (
    Ack,
    Clear,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Operation,
    Purge,
    Push,
    Requeue,
    Seek,
    Trace,
)
from headwater.model.job import JobState
from headwater.model.job_policy import JobPolicy
from headwater.model.names import PartitionId
from headwater.model.principal import Principal, Scope
from headwater.model.record import Record
from headwater.services.admission import admit
from headwater.services.verbs import check_push
from headwater.services.wire_forms import operation_path, to_wire
from headwater.stores.questions import FindLastLsn

LONG = "x" * 257
DEEP = msgspec.Raw(b"[" * 101 + b"]" * 101)
JOB = NewJob(type="a:b")
BAD: Any = "bad name"
ONE = Record(msgspec.Raw(b"1"))
OWNER = Principal(scopes=frozenset(Scope))

REFUSED: list[Operation] = [
    Configure(queue=BAD),
    Configure(queue=""),
    Configure(queue=LONG),
    Configure(queue="q", namespace=BAD),
    Configure(queue="q", task=BAD),
    DeleteQueue(queue=BAD),
    DeleteGroup(group=BAD),
    DeleteGroup(group="g", queue=BAD),
    ConfigureGroup(queue="q", group=BAD),
    ReleaseLeases(queue="q", group=BAD),
    ReleaseLeases(queue="q", partition=BAD),
    ReleaseLeases(queue="q", token=-1),
    ReleaseLeases(queue="q", token=2**62),
    Seek(queue="q", group=""),
    Seek(queue="q", partition=BAD),
    Seek(queue="q", to="elsewhere"),
    Seek(queue="q", timestamp=253_402_300_800_000_000),  # type: ignore[arg-type]
    Seek(queue="q", lsn=2**62),  # type: ignore[arg-type]
    Seek(queue="q", offset=-1),  # type: ignore[arg-type]
    Seek(queue="q", lsn=1, offset=1),  # type: ignore[arg-type]
    Requeue(queue="q", ids=(-1,)),
    Requeue(queue="q", limit=0),
    Requeue(queue="q", limit=100_001),
    Requeue(queue="q", to=BAD),
    Requeue(queue="q", to="headwater/jobs"),
    Requeue(queue="headwater/documents/a"),
    Requeue(queue="headwater/jobs", all_groups=True),
    DeleteQueue(queue="headwater/jobs"),
    DeleteQueue(queue="headwater/documents/a"),
    Purge(queue="q", ids=(2**62,)),
    Purge(queue="q", limit=0),
    Trace(partition_id=1, transaction_id=LONG),  # type: ignore[arg-type]
    Trace(partition_id=1, transaction_id="t", event=LONG),  # type: ignore[arg-type]
    Trace(partition_id=1, transaction_id="t", names=(LONG,)),  # type: ignore[arg-type]
    Trace(partition_id=1, transaction_id="t", data=DEEP),  # type: ignore[arg-type]
    Load(queue="headwater/jobs", source="s", covers=((0, 1),), positions=(0,), records=(ONE,)),
    Load(queue="q", source="s", covers=((0, 1),), positions=(3,), records=(ONE,)),
    Load(queue="q", source="s", covers=((0, 1),), positions=(), records=(ONE,)),
    Enqueue(jobs=()),
    Enqueue(jobs=(NewJob(type=BAD),)),
    Enqueue(jobs=(msgspec.structs.replace(JOB, retries=-1),)),
    Enqueue(jobs=(msgspec.structs.replace(JOB, arguments=msgspec.Raw(b'"%s"' % (b"x" * 2_000_000))),)),
    StopWorkers(workers=()),
    CancelJobs(),
    CancelJobs(ids=("a",), state=JobState.PENDING),
    CancelJobs(ids=(BAD,)),
    RetryJobs(state=JobState.DEAD, error=LONG),
    RetryJobs(state=JobState.DEAD, type=BAD),
    RetryJobs(state=JobState.DEAD, limit=0),
    DropJobs(state=JobState.DEAD, before=253_402_300_800_000_000),  # type: ignore[arg-type]
    PauseJobs(queue=BAD, paused=True),
    SetJobLimit(queue="q", type="a:b"),
    SetJobLimit(queue="q", type=BAD, rate=1.0),
    SetJobLimit(queue="q", type="a:b", rate=-1.0),
    SetJobLimit(queue="q", type="a:b", rate=1.0, burst=0),
    SetJobLimit(queue="q", type="a:b", rate=1.0, seconds=0.0),
    SetJobLimit(queue="q", type="a:b", concurrency=1_000_001),
    SetJobConfig(name="no-such", value=1),
    SetJobConfig(name="max-retries", value=-1),
    SetJobConfig(name="lease", value=30, queue="q"),
    RegisterTypes(types={BAD: JobPolicy()}),
    PutSchedule(name=BAD, cron="@daily", job=JOB),
    PutSchedule(name="s", job=JOB),
    PutSchedule(name="s", cron="@daily", every_seconds=1.0, job=JOB),
    PutSchedule(name="s", cron="61 * * * *", job=JOB),
    PutSchedule(name="s", every_seconds=0.01, job=JOB),
    PutSchedule(name="s", cron="@daily", timezone="Nowhere/City", job=JOB),
    PutSchedule(name="s", cron="@daily", job=msgspec.structs.replace(JOB, id="a")),
    ChangeSchedule(name=BAD, remove=True),
]


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Router]:
    async with headwater.open(str(tmp_path / "a.db"), housekeeping=False) as hw:
        await hw.queue("q").push(1, partition="lane")
        yield make_router(hw)


@pytest.mark.parametrize(
    "operation", REFUSED, ids=[f"{type(one).__name__}-{place}" for place, one in enumerate(REFUSED)]
)
async def test_what_may_not_be_handed_in_is_refused_by_the_library_and_by_the_wire(
    router: Router, operation: Operation
) -> None:
    with pytest.raises(InvalidInput):
        admit(operation, Config())
    service = router.site.queues
    before = await service.ask(FindLastLsn())
    with pytest.raises(InvalidInput):
        await service.run(operation)
    body = msgspec.json.encode(to_wire(operation))
    about = {"content-type": "application/json"}
    path = operation_path(type(operation))
    answer = await router(Request(method="POST", path=path, headers=about, body=body, principal=OWNER))
    assert answer.status in (400, 413), answer.body
    assert await service.ask(FindLastLsn()) == before


@pytest.mark.parametrize("field", ["queue", "group"])
async def test_what_may_be_handed_in_is_handed_on_as_it_is(field: str) -> None:
    sound = Seek(queue="q", group="g", create=True)
    assert admit(sound, Config()) is sound
    with pytest.raises(HeadwaterError, match=field):
        admit(msgspec.structs.replace(sound, **{field: BAD}), Config())


async def test_a_report_and_an_extension_are_handed_on_as_they_are() -> None:
    extend = Extend(partition_id=PartitionId(1), token=3, seconds=60.0)
    report = Ack(partition_id=PartitionId(1), token=3, offsets=(1, 2), errors={1: "broken"})
    assert (admit(extend, Config()), admit(report, Config())) == (extend, report)
    with pytest.raises(InvalidInput):
        admit(msgspec.structs.replace(extend, seconds=0.0), Config())
    long = msgspec.structs.replace(report, errors={1: "x" * 5_000})
    assert admit(long, Config()).errors == {1: "x" * 4_096}


async def test_ids_that_are_named_twice_count_once() -> None:
    assert admit(Requeue(queue="q", ids=[3, 1, 3]), Config()).ids == (3, 1)
    assert admit(CancelJobs(ids=["a", "b", "a"]), Config()).ids == ("a", "b")


# ── queues of Headwater's own ──

# Operations that add records to a queue they name, or take some away: refused for Headwater's own.
ADDS_OR_DROPS: list[Operation] = [
    Push(queue="headwater/jobs", records=[ONE]),
    Load(queue="headwater/jobs", source="s", covers=((0, 1),), positions=(0,), records=(ONE,)),
    Requeue(queue="q", to="headwater/jobs"),
    Requeue(queue="headwater/jobs"),
    DeleteQueue(queue="headwater/jobs"),
    Clear(queue="headwater/jobs"),
]
# These leave the log of the queue as it is: groups and their dead letters, options, or queues of jobs.
LEAVES_THE_LOG = {
    *("Pop", "Purge", "Seek", "DeleteGroup", "ConfigureGroup", "ReleaseLeases", "Configure"),
    *("MarkArchived", "RegisterStream", "AddAccessToken"),
    *("Claim", "ChooseJobs", "CancelJobs", "RetryJobs", "DropJobs", "PauseJobs", "SetJobLimit", "SetJobConfig"),
}
# These are for rooms alone, whose queues they take from the name of a room; no wire takes such a name of a queue.
OF_ROOMS = {"RoomPush", "TrimRoom"}


def kinds(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from kinds(one)


def test_of_every_operation_that_names_a_queue_it_is_known_whether_it_writes_there() -> None:
    naming = {
        kind.__name__
        for kind in kinds(Operation)
        if kind.__module__.startswith("headwater.")
        and any("queue" in field.name for field in msgspec.structs.fields(kind))
    }
    assert naming == {type(one).__name__ for one in ADDS_OR_DROPS} | LEAVES_THE_LOG | OF_ROOMS


@pytest.mark.parametrize("operation", ADDS_OR_DROPS, ids=lambda one: type(one).__name__)
def test_nothing_is_written_to_a_queue_of_headwaters_own(operation: Operation) -> None:
    check = check_push if isinstance(operation, Push) else admit
    with pytest.raises(InvalidName, match="Headwater's own"):
        check(operation, Config())  # type: ignore[arg-type]
