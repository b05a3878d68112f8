"""Ids of documents that nobody named: in the order of time, so that what is made together lies together."""

from pathlib import Path

import headwater
from headwater.clock import Timestamp
from headwater.model.document import check_document_id, new_document_id

PAGE_BYTES = 4_096


def bytes_written() -> int:
    """How much this process has written so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def test_ids_come_in_the_order_of_time_and_no_two_are_the_same() -> None:
    later = [new_document_id(Timestamp(second * 1_000_000)) for second in range(1_600_000_000, 1_600_001_000)]
    assert later == sorted(later)
    at_once = {check_document_id(new_document_id(Timestamp(1_700_000_000_000_000))) for _ in range(1_000)}
    assert len(at_once) == 1_000


async def test_a_commit_of_many_new_documents_writes_few_pages(tmp_path: Path) -> None:
    """Under ids that are spread over the collection, each document would change a page of its own."""
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False, durability="written") as hw:

        async def make(count: int) -> None:
            async with hw.transaction() as together:
                for number in range(count):
                    together.collection("notes").create({"text": "hello " * 20, "n": number})

        for _ in range(4):
            await make(1_000)
        before = bytes_written()
        await make(200)
        pages = (bytes_written() - before) / PAGE_BYTES
    assert 0 < pages < 100, pages
