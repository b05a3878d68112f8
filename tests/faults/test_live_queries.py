"""Live queries whose connections are cut again and again, while others write and the log is cut short now and then.

A checker replays the log: after every resume the client gets exactly what concerned it since the last change that
reached it, or is told that this cannot be (S3-8, S3-11, S3-29, S3-34).
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import headwater
from headwater.config import Durability
from headwater.doors.site import Site
from headwater.log.operations import Clear
from headwater.model.document import DocumentChange, changes_queue
from headwater.model.names import Lsn
from headwater.services.feed import changes_of
from tests.doors.realtime.pages import MESSAGES, Page, until
from tests.faults.conftest import Rounds

Found = dict[str, Any]
LOUD = [{"field": "loud", "op": "==", "value": True}]


class Checker:
    """What the log says, read by itself: which changes concern who wants loud messages."""

    def __init__(self, hw: headwater.Headwater) -> None:
        self._hw = hw
        self._reached = Lsn(0)
        self.changes: list[tuple[int, str, int]] = []
        self._loud: set[str] = set()

    async def read(self) -> None:
        """Read on."""
        for segment in await self._hw.store.read(self._reached, Lsn(2**62), 10_000, ("main", changes_queue(MESSAGES))):
            for change, _, place in changes_of(segment):
                if self._concerns(change):
                    self.changes.append((place[0], change.id, change.version))
            self._reached = segment.lsn

    def _concerns(self, change: DocumentChange) -> bool:
        was = change.id in self._loud
        now = change.op != "delete" and msgspec.json.decode(change.after)["loud"] is True
        (self._loud.add if now else self._loud.discard)(change.id)
        return was or now


class Client:
    """What has reached a client so far."""

    def __init__(self) -> None:
        self.token = ""
        self.last_seq = -1
        self.resyncs = 0

    async def come(self, site: Site) -> tuple[Page, dict[str, int] | None]:
        """Connect and go on, or begin anew; the versions of the snapshot in that case."""
        if self.token:
            page = Page(site)
            await page.say("resume", {"token": self.token, "lastSeq": self.last_seq}, "r")
            if (await page.hear("resume-ack"))[0]["status"] == "ok":
                return page, None
            await page.hear("resync-required")
            page.cut()
            self.resyncs += 1
        page = Page(site)
        self.token = (await page.subscribe(sendSnapshot=True, filters=LOUD))["token"]
        await until(lambda: any(not one["more"] for one in page.all("snapshot")))
        pages = page.all("snapshot")
        self.last_seq = pages[-1]["seq"]
        return page, {one["id"]: one["version"] for part in pages for one in part["documents"]}


async def test_what_reaches_a_client_over_many_cuts_is_the_stream_or_it_is_told_that_it_is_not(
    tmp_path: Path, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(15)
    told = 0
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False, durability="written") as hw:
        site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")
        checker, client = Checker(hw), Client()
        cuts = rounds(40, 1_000)
        for _ in range(cuts):
            page, snapshot = await client.come(site)
            await write(hw, chance)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            # Of what was sent when the connection was cut, some is lost.
            heard = page.all("event")
            heard = heard[: chance.randrange(len(heard) + 1)]
            page.cut()
            await checker.read()
            expected = [
                seq
                for seq, name, version in checker.changes
                if seq > client.last_seq and (snapshot is None or version > snapshot.get(name, 0))
            ]
            assert [one["seq"] for one in heard] == expected[: len(heard)]
            told += len(heard)
            if heard:
                client.last_seq = heard[-1]["seq"]
            if chance.random() < 0.05:
                await hw.committer.submit(Clear(database="main", queue=changes_queue(MESSAGES)), Durability.WRITTEN)
        page, _ = await client.come(site)
        rest = [seq for seq, _, _ in checker.changes if seq > client.last_seq]
        await until(lambda: len(page.all("event")) >= len(rest))
        page.cut()
    assert told > cuts
    assert client.resyncs, "the log was never cut short for this client: that says nothing"
    record_property("cuts", cuts)
    record_property("events told", told)
    record_property("resyncs said", client.resyncs)


async def write(hw: headwater.Headwater, chance: random.Random) -> None:
    messages = hw.collection(MESSAGES)
    for _ in range(chance.randrange(1, 12)):
        name = f"m{chance.randrange(12)}"
        if chance.random() < 0.2 and await messages.get(name):
            await messages.delete(name)
        else:
            await messages.set(name, {"loud": chance.random() < 0.6})
