"""Long lists, a page at a time: a store with tens of thousands of queues must not keep anybody else waiting.

A page is one question to the store, and after each the event loop serves others. What a caller may not use is left out
by the store itself, so that it changes neither the pages nor their number.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec

from headwater.doors.site import Site
from headwater.doors.wire import Response
from headwater.model.principal import Principal
from headwater.stores.questions import GroupStatus, ListGroups, ListQueues, Part, QueueStatus

PAGE_ROWS = 200

_encoder = msgspec.json.Encoder()


async def queue_pages(
    site: Site, principal: Principal, after: str = "", limit: int | None = None
) -> AsyncIterator[list[QueueStatus]]:
    """The queues that somebody may use, by name, after a name."""
    left = limit
    while left is None or left > 0:
        rows = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        page = await site.queues.ask(ListQueues(principal.database, Part(principal.reach, (after, ""), rows)))
        if page:
            yield page
        if len(page) < rows:
            return
        after = page[-1].queue
        left = None if left is None else left - rows


async def group_pages(
    site: Site, principal: Principal, queue: str = "", after: tuple[str, str] = ("", ""), limit: int | None = None
) -> AsyncIterator[list[GroupStatus]]:
    """The groups of queues that somebody may use, by queue and name, after one of them."""
    left = limit
    while left is None or left > 0:
        rows = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        page = await site.queues.ask(ListGroups(principal.database, queue, Part(principal.reach, after, rows)))
        if page:
            yield page
        if len(page) < rows:
            return
        after = (page[-1].queue, page[-1].group)
        left = None if left is None else left - rows


async def all_queues(site: Site, principal: Principal) -> list[QueueStatus]:
    """All queues that somebody may use."""
    return [status async for page in queue_pages(site, principal) for status in page]


async def all_groups(site: Site, principal: Principal) -> list[GroupStatus]:
    """All groups of queues that somebody may use."""
    return [status async for page in group_pages(site, principal) for status in page]


async def list_response(pages: AsyncIterator[Sequence[object]]) -> Response:
    """A list that may be long: one page as it is, more of them as a stream."""
    first: Sequence[object] = await anext(pages, [])
    second = await anext(pages, None)
    if second is None:
        return Response(body=_encoder.encode(first))
    return Response(chunks=_stream(first, second, pages))


async def _stream(
    first: Sequence[object], second: Sequence[object], rest: AsyncIterator[Sequence[object]]
) -> AsyncGenerator[bytes, None]:
    yield _encoder.encode(first)[:-1]
    yield b"," + _encoder.encode(second)[1:-1]
    async for page in rest:
        yield b"," + _encoder.encode(page)[1:-1]
    yield b"]"
