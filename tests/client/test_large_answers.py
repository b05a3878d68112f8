"""Many large messages and documents at once, each within its bound: an answer has an end, and nothing is lost."""

import pytest

from tests.client.conftest import Interface

LARGE = "x" * 250_000
# More than a client reads of one answer.
COUNT = 300


async def test_a_batch_of_large_messages_comes_in_several_pops(interface: Interface) -> None:
    orders = interface.queue("orders")
    for first in range(0, COUNT, 50):
        await orders.push_many([{"n": n, "text": LARGE} for n in range(first, first + 50)], partition="p")
    taken: list[int] = []
    while messages := await orders.pop(batch=1_000, auto_ack=True):
        taken += [message.payload["n"] for message in messages]
    assert taken == list(range(COUNT))


async def test_a_loop_with_a_large_batch_gets_all_large_messages(interface: Interface) -> None:
    orders = interface.queue("orders")
    for first in range(0, COUNT, 50):
        await orders.push_many([{"n": n, "text": LARGE} for n in range(first, first + 50)], partition="p")
    taken: list[int] = []
    async with orders.consume(batch=1_000, idle_seconds=0) as messages:
        async for message in messages:
            taken.append(message.payload["n"])
    assert taken == list(range(COUNT))


@pytest.fixture
async def collection(interface: Interface) -> None:
    notes = interface.collection("notes")
    for first in range(0, COUNT, 50):
        async with interface.transaction() as together:
            for number in range(first, first + 50):
                together.collection("notes").set(f"n{number:03}", {"n": number, "text": LARGE})
    assert await notes.get("n000") is not None


@pytest.mark.usefixtures("collection")
async def test_a_query_of_large_documents_is_answered_in_pages(interface: Interface) -> None:
    notes = interface.collection("notes")
    page = await notes.query(limit=1_000)
    assert 0 < len(page) < COUNT, "an answer has an end"
    found = list(page)
    while page.next_cursor:
        page = await notes.query(limit=1_000, start_after=page.next_cursor)
        found += page
    assert [note["n"] for note in found] == list(range(COUNT))


@pytest.mark.usefixtures("collection")
async def test_a_live_query_begins_with_all_large_documents(interface: Interface) -> None:
    changes = interface.collection("notes").follow()
    snapshot = await anext(changes)
    assert [note["n"] for note in snapshot.documents] == list(range(COUNT))
    await changes.aclose()
