"""On a store with many queues no request takes the event loop for itself: work is counted, not timed.

Between two turns of the loop a request may get so many rows of the store, and send so many bytes.
"""

from pathlib import Path
from typing import Any

import msgspec

import headwater
from headwater.app import Headwater, make_router
from headwater.config import Durability
from headwater.doors.all_routes import ROUTES
from headwater.doors.listing import PAGE_ROWS
from headwater.doors.wire import Request, Response
from headwater.log.operations import Pop, Push
from headwater.model.record import Record
from headwater.stores.questions import ListGroups, ListPartitions, ListQueues, ListTraceNames, Question

QUEUES = 20_000
GROUPS = 500
BYTES_MAX = 1_000_000
ROWS_MAX = 1_000
# Routes that list every queue or group, and so ask for all of them.
LISTS = ("/metrics", "/metrics/prometheus", "/", "/v1/questions/list-queues", "/v1/questions/list-groups")


async def fill(hw: Headwater) -> None:
    records = [Record(msgspec.Raw(b"1"))]
    names = [f"queue-{number:05}" for number in range(QUEUES)]
    for begin in range(0, QUEUES, 1_000):
        some = names[begin : begin + 1_000]
        await hw.queues_service.push_each([Push(queue=name, records=records) for name in some], None)
    for name in names[:GROUPS]:
        await hw.queues_service.run(Pop(queue=name, group="g"), Durability.WRITTEN)


class Watch:
    """A store whose answers are counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def ask(self, question: Question[Any]) -> Any:
        answer = await self._store.ask(question)
        if isinstance(question, ListQueues | ListGroups | ListPartitions | ListTraceNames):
            self.largest = max(self.largest, len(answer))
        return answer


async def size_of_pieces(response: Response) -> int:
    largest = len(response.body)
    if response.chunks is not None:
        async for chunk in response.chunks:
            largest = max(largest, len(chunk))
            if response.content_type == "text/event-stream":
                break
        await response.chunks.aclose()
    return largest


def requests() -> list[Request]:
    """All that looks at something, without more to say of what."""
    looks = [route for route in ROUTES if route.method == "GET" and "{" not in route.path and not route.changes]
    asks = [route for route in ROUTES if route.path.startswith("/v1/questions/")]
    return [Request(method=route.method, path=route.path, headers={"accept": "text/html"}) for route in looks + asks]


async def test_no_request_gets_more_of_a_big_store_at_once_than_a_page(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "big.db"), housekeeping=False) as hw:
        await fill(hw)
        router = make_router(hw)
        found: dict[str, tuple[int, int]] = {}
        for request in requests():
            path = request.path
            watch = Watch(hw.store)
            router.site.queues.store = watch
            response = await router(request)
            assert response.status < 500, path
            found[path] = (watch.largest, await size_of_pieces(response))
            router.site.queues.store = hw.store
    assert {path: largest for path, (largest, _) in found.items() if largest > ROWS_MAX} == {}
    for path in LISTS:
        largest, size = found[path]
        assert 0 < largest <= PAGE_ROWS, path
        assert size <= BYTES_MAX, path
