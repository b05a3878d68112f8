"""Queues and their options: made by name, merged, checked."""

from typing import Any

import pytest

from headwater.errors import InvalidName, InvalidOption
from headwater.log.operations import Configure
from headwater.model.queue import QueueOptions
from headwater.stores.questions import ListQueues
from tests.contracts.log import Log, push


async def test_a_queue_is_made_with_the_defaults(log: Log) -> None:
    configured = await log.run(Configure(queue="orders"))
    assert (configured.queue, configured.namespace, configured.task) == ("orders", "", "")
    assert configured.options == QueueOptions()
    assert (await log.queue()).options == QueueOptions()


async def test_options_that_are_not_named_stay(log: Log) -> None:
    await log.run(Configure(queue="orders", namespace="shop", task="bill", options={"retry_limit": 7}))
    configured = await log.run(Configure(queue="orders", options={"lease_seconds": 5}))
    assert (configured.namespace, configured.task) == ("shop", "bill")
    assert configured.options == QueueOptions(retry_limit=7, lease_seconds=5.0)


async def test_namespace_and_task_can_be_taken_away(log: Log) -> None:
    await log.run(Configure(queue="orders", namespace="shop", task="bill"))
    configured = await log.run(Configure(queue="orders", namespace=""))
    assert (configured.namespace, configured.task) == ("", "bill")


async def test_a_push_makes_a_queue_that_is_not_there(log: Log) -> None:
    await log.push(1, queue="fresh")
    assert (await log.queue("fresh")).options == QueueOptions()


@pytest.mark.parametrize(
    "options",
    [
        {"colour": "red"},
        {"retry_limit": "many"},
        {"retry_limit": -1},
        {"lease_seconds": 0},
        {"lease_seconds": 8 * 86_400},
        {"size_max": -5},
        {"window_seconds": 86_401},
        {"priority": 1_000_001},
    ],
    ids=str,
)
async def test_a_wrong_option_is_refused_and_makes_no_queue(log: Log, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        await log.configure(**options)
    assert await log.store.ask(ListQueues("main")) == []


async def test_a_refused_change_leaves_the_options_as_they_were(log: Log) -> None:
    await log.configure(retry_limit=2)
    with pytest.raises(InvalidOption):
        await log.configure(retry_limit=5, lease_seconds=-1)
    assert (await log.queue()).options == QueueOptions(retry_limit=2)


async def test_a_change_counts_for_pushes_of_the_same_commit(log: Log) -> None:
    _, pushed = await log.results(Configure(queue="orders", options={"deduplication_seconds": 0}), push(1, 2, ids="aa"))
    assert pushed.count == 2


async def test_a_change_counts_in_another_store_at_once(log: Log, other: Log) -> None:
    await other.push(1)
    await log.configure(size_max=1)
    (refused,) = await other.results(push(2))
    assert refused.code == "queue_full"


async def test_a_queue_of_headwater_itself_is_configured_and_never_made(log: Log) -> None:
    with pytest.raises(InvalidName, match="Headwater's own"):
        await log.run(Configure(queue="headwater/zz"))
    assert await log.store.ask(ListQueues("main")) == []
    await log.run(push(1, queue="headwater/zz"))
    assert (await log.run(Configure(queue="headwater/zz", options={"retry_limit": 7}))).options.retry_limit == 7
