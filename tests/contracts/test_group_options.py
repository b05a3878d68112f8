"""Back-off of what fails, and consumer groups that have a lease and retries of their own."""

import pytest

from headwater.clock import SECOND
from headwater.errors import InvalidOption, QueueMissing
from headwater.log.group_operations import ConfigureGroup, GroupConfigured
from headwater.model.cursor import Outcome
from headwater.model.names import GROUP_DEFAULT
from headwater.stores.questions import ListGroups
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log


async def configure_group(log: Log, group: str, **options: object) -> GroupConfigured:
    configured: GroupConfigured = await log.run(ConfigureGroup(queue=QUEUE, group=group, options=options))
    return configured


async def waits(log: Log, clock: FakeClock, count: int, group: str = GROUP_DEFAULT) -> list[float]:
    """How long a record that fails again and again waits each time, in seconds."""
    found = []
    for _ in range(count):
        await log.settle(await log.take(group=group), Outcome.FAILED)
        free_at = await log.free_at(group=group)
        assert free_at is not None
        found.append((free_at - clock.now()) / SECOND)
        clock.advance((free_at - clock.now()) / SECOND)
    return found


async def test_what_fails_again_waits_longer_each_time_up_to_a_bound(log: Log, clock: FakeClock) -> None:
    await log.configure(
        retry_limit=9, retry_delay_seconds=2, retry_factor=3, retry_delay_max_seconds=60, retry_jitter=0
    )
    await log.push(1)
    assert await waits(log, clock, 5) == [2, 6, 18, 54, 60]


async def test_jitter_takes_a_part_of_the_wait_off_and_another_part_each_time(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=99, retry_delay_seconds=10, retry_factor=1, retry_jitter=0.5)
    await log.push(1)
    found = await waits(log, clock, 20)
    assert all(5 <= seconds <= 10 for seconds in found)
    assert len(set(found)) > 15


async def test_the_wait_begins_anew_with_the_next_record(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=1, retry_delay_seconds=2, retry_factor=5, retry_jitter=0)
    await log.push(1, 2)
    assert await waits(log, clock, 1) == [2]
    await log.settle(await log.take(), Outcome.FAILED)
    assert await waits(log, clock, 1) == [2]


async def test_a_group_has_a_lease_of_its_own(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    for group in ("a", "b"):
        await log.settle(await log.take(group=group), Outcome.RELEASED)
    await log.configure(lease_seconds=100)
    configured = await configure_group(log, "a", lease_seconds=7)
    assert (configured.own, configured.options.lease_seconds) == ({"lease_seconds": 7}, 7)
    assert (await log.take(group="a")).lease_until == clock.now() + 7 * SECOND
    assert (await log.take(group="b")).lease_until == clock.now() + 100 * SECOND


async def test_a_group_has_retries_and_a_back_off_of_its_own(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=0)
    await log.push(1)
    for group in ("a", "b"):
        await log.settle(await log.take(group=group), Outcome.RELEASED)
    await configure_group(log, "a", retry_limit=2, retry_delay_seconds=3, retry_factor=2, retry_jitter=0)
    assert await waits(log, clock, 2, group="a") == [3, 6]
    assert (await log.settle(await log.take(group="a"), Outcome.FAILED)).buried == (0,)
    assert (await log.settle(await log.take(group="b"), Outcome.FAILED)).buried == (0,)


async def test_a_lease_of_a_group_that_runs_out_counts_by_the_limit_of_the_group(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.settle(await log.take(group="a"), Outcome.RELEASED)
    await configure_group(log, "a", retry_limit=0, lease_seconds=1)
    await log.take(group="a")
    clock.advance(2)
    assert (await log.reap()).buried == 1


async def test_a_group_can_go_back_to_what_its_queue_says(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.settle(await log.take(group="a"), Outcome.RELEASED)
    await configure_group(log, "a", lease_seconds=7, retry_limit=1)
    configured = await configure_group(log, "a", lease_seconds=None)
    assert configured.own == {"retry_limit": 1}
    await log.configure(lease_seconds=50)
    assert (await log.take(group="a")).lease_until == clock.now() + 50 * SECOND


async def test_a_group_that_is_not_there_is_not_made_by_a_mistyped_name(log: Log) -> None:
    await log.push(1)
    await log.pop(group="billing")
    with pytest.raises(QueueMissing, match="billing"):
        await configure_group(log, "biling", retry_limit=1)
    assert [group.group for group in await log.store.ask(ListGroups("main", QUEUE))] == ["billing"]


@pytest.mark.parametrize("options", [{"lanes": 2}, {"retry_limit": -1}, {"retry_jitter": 2}, {"size_max": 3}])
async def test_what_a_group_cannot_have_is_refused_and_changes_nothing(log: Log, options: dict[str, int]) -> None:
    await log.push(1)
    await log.pop(group="a")
    with pytest.raises(InvalidOption):
        await configure_group(log, "a", **options)
    assert (await configure_group(log, "a")).own == {}
