"""Records that are kept compressed, encrypted or both come back as they were pushed; the right key is needed."""

from typing import Any

import pytest
from msgspec import Raw

from headwater.errors import EncryptionKeyMissing, InvalidOption
from headwater.log.operations import Pop, Promote, Purge, Requeue, Trace
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId
from headwater.stores.questions import ListGroups, ListPositions, ListQueues, ListTraces, ListTracesNamed
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import QUEUE, Log, payloads, push

KEY = "0123456789abcdef" * 4
OTHER_KEY = "fedcba9876543210" * 4


@pytest.mark.parametrize(
    "options",
    [{"compress_bytes_min": 1}, {"encrypted": True}, {"encrypted": True, "compress_bytes_min": 1}],
    ids=["compressed", "encrypted", "both"],
)
async def test_records_come_back_as_they_were_pushed(open_log: OpenLog, options: dict[str, Any]) -> None:
    log = await open_log(encryption_key=KEY)
    await log.configure(**options)
    sent = ["grüße " * 200, {"number": 1.5}, None, "x"]
    await log.push(*sent[:2])
    await log.push(*sent[2:])
    assert [payload for segment in await log.read() for payload in payloads(segment)] == sent
    batch = await log.take(10)
    assert payloads(batch) == sent
    await log.settle(batch, Outcome.DEAD)
    assert [bytes(letter.record.data) for letter in await log.dead_letters()] == [bytes(r.data) for r in batch.records]
    await log.run(Requeue(queue="orders"))
    assert await log.drain() == sent


async def test_options_may_change_while_older_records_are_kept(open_log: OpenLog) -> None:
    log = await open_log(encryption_key=KEY)
    await log.push("plain")
    await log.configure(encrypted=True)
    await log.push("secret")
    await log.configure(encrypted=False, compress_bytes_min=1)
    await log.push("small " * 100)
    assert await log.drain() == ["plain", "secret", "small " * 100]


async def test_records_that_do_not_shrink_are_kept_as_they_are(log: Log) -> None:
    await log.configure(compress_bytes_min=1)
    await log.push(1)
    assert await log.drain() == [1]


async def test_duplicates_are_found_among_encrypted_records_for_later(open_log: OpenLog) -> None:
    first = await open_log(encryption_key=KEY)
    await first.push("early", ids=["0"], partition="p", delay_seconds=60)
    await first.configure(encrypted=True)
    await first.push("secret", ids=["1"], partition="p", delay_seconds=60)
    second = await open_log(encryption_key=KEY)
    for identity in ("0", "1"):
        pushed = await second.push("again", ids=[identity], partition="p", delay_seconds=60)
        assert list(pushed.duplicates) == [0], identity
    assert not (await second.push("other", ids=["2"], partition="p", delay_seconds=60)).duplicates


async def test_duplicates_are_found_among_encrypted_records(open_log: OpenLog) -> None:
    first = await open_log(encryption_key=KEY)
    await first.configure(encrypted=True, compress_bytes_min=1)
    await first.push("secret", ids=["1"])
    second = await open_log(encryption_key=KEY)
    assert (await second.push("secret", ids=["1"])).duplicates == {0: 0}


async def test_a_queue_cannot_be_encrypted_without_a_key(log: Log) -> None:
    with pytest.raises(EncryptionKeyMissing):
        await log.configure(encrypted=True)
    assert await log.store.ask(ListQueues("main")) == []


async def encrypted_log(open_log: OpenLog) -> Log:
    log = await open_log(encryption_key=KEY)
    await log.configure(encrypted=True)
    await log.push("secret", ids=["1"])
    return log


@pytest.mark.parametrize("key", ["", OTHER_KEY], ids=["no key", "another key"])
async def test_records_do_not_open_without_the_right_key(open_log: OpenLog, key: str) -> None:
    await encrypted_log(open_log)
    stranger = await open_log(encryption_key=key)
    with pytest.raises(EncryptionKeyMissing):
        await stranger.pop()
    with pytest.raises(EncryptionKeyMissing):
        await stranger.read()
    owner = await open_log(encryption_key=KEY)
    assert payloads(await owner.take(group="owner")) == ["secret"]


@pytest.mark.parametrize("encrypted", [True, False], ids=["encrypted", "no longer encrypted"])
@pytest.mark.parametrize("key", ["", OTHER_KEY], ids=["no key", "another key"])
async def test_a_pop_that_is_refused_for_want_of_the_key_leaves_no_group(
    open_log: OpenLog, key: str, encrypted: bool
) -> None:
    """Nor a position, though it passed what is over in another partition; and it can be made later."""
    owner = await encrypted_log(open_log)
    await owner.push("empty", partition="other", ttl_seconds=1)
    owner.clock.advance(1)
    await owner.configure(encrypted=encrypted)
    stranger = await open_log(encryption_key=key)
    await stranger.push("public", queue="plain")
    refused = await stranger.results(Pop(queue=QUEUE, group="g"), Pop(queue=QUEUE, group="g"))
    refused += await stranger.results(Pop(queue=QUEUE, group="h"))
    assert await stranger.drain(queue="plain", group="h") == ["public"]
    assert [type(one) for one in refused] == [EncryptionKeyMissing] * 3
    assert await owner.store.ask(ListGroups("main", QUEUE)) == []
    assert [position.queue for position in await owner.store.ask(ListPositions("main"))] == ["plain"]
    assert payloads(await owner.take(group="g")) == ["secret"]


async def test_a_group_that_was_there_stays_when_a_pop_is_refused_for_want_of_the_key(open_log: OpenLog) -> None:
    owner, stranger = await encrypted_log(open_log), await open_log()
    assert await owner.drain() == ["secret"]
    await owner.push("more")
    with pytest.raises(EncryptionKeyMissing):
        await stranger.pop()
    assert await owner.drain() == ["more"]


@pytest.mark.parametrize("key", ["", OTHER_KEY], ids=["no key", "another key"])
async def test_a_process_without_the_key_can_push_nothing(open_log: OpenLog, key: str) -> None:
    """In the clear anybody could read it, and with another key nobody who has the right one."""
    owner = await encrypted_log(open_log)
    stranger = await open_log(encryption_key=key)
    plain, refused = await stranger.results(push("public", queue="plain"), push("oops"))
    assert plain.offsets() == [0]
    assert isinstance(refused, EncryptionKeyMissing)
    (later,) = await stranger.results(push("oops", delay_seconds=60))
    assert isinstance(later, EncryptionKeyMissing)
    with pytest.raises(EncryptionKeyMissing):
        await stranger.configure(queue="more", encrypted=True)
    assert (await owner.push("more")).offsets() == [1]
    assert await owner.drain() == ["secret", "more"]


async def test_a_key_that_was_refused_once_is_refused_again_and_the_right_one_is_not(open_log: OpenLog) -> None:
    owner, stranger = await encrypted_log(open_log), await open_log(encryption_key=OTHER_KEY)
    for number in range(3):
        (refused,) = await stranger.results(push("oops"))
        assert isinstance(refused, EncryptionKeyMissing)
        assert (await owner.push("more")).offsets() == [number + 1]


async def test_a_process_without_the_key_can_use_other_queues(open_log: OpenLog) -> None:
    await encrypted_log(open_log)
    stranger = await open_log()
    await stranger.push("a", ids=["1"], queue="plain")
    assert (await stranger.push("a", ids=["1"], queue="plain")).duplicates == {0: 0}
    assert await stranger.drain(queue="plain") == ["a"]


async def test_a_pop_over_queues_serves_those_that_open(open_log: OpenLog) -> None:
    """By namespace: a queue whose records do not open must not keep the others from being served for ever."""
    await encrypted_log(open_log)
    stranger = await open_log()
    await stranger.push("public", queue="plain")
    found = []
    for _ in range(4):
        (result,) = await stranger.results(Pop())
        found += [] if isinstance(result, EncryptionKeyMissing) else [batch.queue for batch in result.batches]
    assert "plain" in found


@pytest.mark.parametrize("key", ["", OTHER_KEY], ids=["no key", "another key"])
@pytest.mark.parametrize("encrypted_first", [True, False], ids=["encrypted", "plain"])
async def test_who_has_no_key_puts_nothing_off_for_who_has(
    open_log: OpenLog, clock: FakeClock, key: str, encrypted_first: bool
) -> None:
    """Every commit delivers what is due, also that of a worker or a program that has another key, or none."""
    owner, stranger = await open_log(encryption_key=KEY), await open_log(encryption_key=key)
    if not encrypted_first:
        await owner.push("secret", partition="p", delay_seconds=5)
    await owner.configure(encrypted=True)
    await owner.push("sealed", partition="p")
    if encrypted_first:
        await owner.push("secret", partition="p", delay_seconds=5)
    assert await owner.drain() == ["sealed"]
    await stranger.push("open", queue="other", partition="p", delay_seconds=6)
    for _ in range(3):
        clock.advance(6)
        await stranger.push("more", queue="other", partition="p")
    assert await stranger.drain(queue="other") == ["open", "more", "more", "more"], "others do not wait for it"
    assert (await stranger.run(Pop(queue="other"))).ready_at is None, "nor is it looked for again at once"
    assert await owner.drain() == ["secret"]


async def test_who_gets_the_key_later_delivers_what_was_left(open_log: OpenLog, clock: FakeClock) -> None:
    owner, stranger = await open_log(encryption_key=KEY), await open_log()
    await owner.configure(encrypted=True)
    await owner.push("sealed", partition="p", delay_seconds=5)
    clock.advance(5)
    assert (await stranger.run(Promote())).count == 0
    assert (await (await open_log(encryption_key=KEY)).run(Promote())).count == 1


async def test_the_error_of_a_dead_letter_is_read_with_the_key_alone(open_log: OpenLog) -> None:
    log = await open_log(encryption_key=KEY)
    await log.push("plain", "secret", "plain again", partition="p")
    for error, encrypted in (("of before", False), ("hidden", True), ("of later", False)):
        await log.configure(encrypted=encrypted)
        await log.settle(await log.take(), Outcome.DEAD, error=error)
    assert [letter.error for letter in await log.dead_letters()] == ["of before", "hidden", "of later"]
    assert [letter.error for letter in await (await open_log()).dead_letters(limit=1)] == ["of before"]
    with pytest.raises(EncryptionKeyMissing):
        await (await open_log()).dead_letters()


async def test_events_of_an_encrypted_queue_are_read_with_the_key_alone(open_log: OpenLog) -> None:
    log = await open_log(encryption_key=KEY)
    partition_id = (await log.push("secret", ids=["1"], partition="p")).partition_id
    for event, encrypted in (("before", False), ("hidden", True), ("later", False)):
        await log.configure(encrypted=encrypted)
        data = Raw(b'{"about": "%s"}' % event.encode())
        await log.run(
            Trace(partition_id=partition_id, transaction_id="1", group="g", names=("n",), event=event, data=data)
        )
    of_record = await log.store.ask(ListTraces("main", partition_id, "1"))
    assert [(one.transaction_id, one.event) for one in of_record] == [("1", "before"), ("1", "hidden"), ("1", "later")]
    assert [bytes(one.data) for one in of_record] == [
        b'{"about": "before"}',
        b'{"about": "hidden"}',
        b'{"about": "later"}',
    ]
    named = ListTracesNamed("main", "n", limit=10)
    assert await log.store.ask(named) == of_record[::-1]
    with pytest.raises(EncryptionKeyMissing):
        await (await open_log()).store.ask(named)


@pytest.mark.parametrize("key", ["", OTHER_KEY], ids=["no key", "another key"])
async def test_who_has_not_the_key_neither_notes_nor_finds_events(open_log: OpenLog, key: str) -> None:
    owner, stranger = await open_log(encryption_key=KEY), await open_log(encryption_key=key)
    await owner.configure(encrypted=True)
    partition_id = (await owner.push("secret", ids=["1"])).partition_id
    assert partition_id is not None
    note = Trace(partition_id=partition_id, transaction_id="1", group="g", names=("n",), event="seen", data=Raw(b"1"))
    await owner.run(note)
    with pytest.raises(EncryptionKeyMissing):
        await stranger.run(note)
    with pytest.raises(EncryptionKeyMissing):
        await stranger.store.ask(ListTraces("main", partition_id, "1"))
    assert len(await owner.store.ask(ListTracesNamed("main", "n", limit=10))) == 1
    assert await stranger.store.ask(ListTraces("main", PartitionId(partition_id + 1), "1")) == []


@pytest.mark.parametrize("by_number", [False, True])
async def test_who_has_lost_the_key_can_still_purge_dead_letters(open_log: OpenLog, by_number: bool) -> None:
    owner, stranger = await open_log(encryption_key=KEY), await open_log()
    await owner.configure(encrypted=True)
    await owner.push("secret", "other")
    await owner.settle(await owner.take(2), Outcome.DEAD)
    numbers = [letter.id for letter in await owner.dead_letters()]
    purge = Purge(queue="orders", ids=numbers if by_number else (), limit=10)
    assert (await stranger.run(purge)).count == 2
    assert await owner.dead_letters() == []


async def test_dead_letters_of_an_encrypted_queue_go_to_no_queue_that_is_not(open_log: OpenLog) -> None:
    log = await open_log(encryption_key=KEY)
    await log.configure(encrypted=True)
    await log.configure(queue="plain")
    await log.push("secret", partition="p")
    await log.settle(await log.take(), Outcome.DEAD)
    for to in ("plain", "new"):
        (refused,) = await log.results(Requeue(queue="orders", to=to))
        assert isinstance(refused, InvalidOption)
        assert repr(to) in str(refused)
    assert {status.queue for status in await log.store.ask(ListQueues("main"))} == {"orders", "plain"}
    assert len(await log.dead_letters()) == 1
    await log.configure(queue="safe", encrypted=True)
    assert (await log.run(Requeue(queue="orders", to="safe"))).count == 1
    assert await log.drain(queue="safe") == ["secret"]
