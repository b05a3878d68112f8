"""One tail per process: wakes, asks once what is new after its LSN, and tells everybody who follows.

Commits of this process are handed over directly; those of others are found by looking at the store. Either way each
segment is told once, in LSN order. Whoever subscribes does so before it reads, or a commit in between is missed.
Until the first one does, the tail does not listen: a process that only writes is not woken by its own commits.

What this process commits is kept for a while with its records (`recent.py`), so that it is not read back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headwater.config import MIB
from headwater.errors import Closed, StoreReplaced
from headwater.log.operations import Commit, Touch
from headwater.log.recent import Recent
from headwater.model.names import Lsn
from headwater.outage import OUTAGES, PAUSE_SECONDS, tell
from headwater.stores.contract import Store
from headwater.stores.questions import FindLastLsn
from headwater.wakeups.contract import Found, Wakeup

log = logging.getLogger(__name__)

LOOK_LIMIT = 1_000
NOT_READ = "the tail could not read the log; it tries again at the next wake-up"
RECENT_BYTES_MAX = 8 * MIB
RECENT_SEGMENTS_MAX = 10_000

Follower = Callable[[Sequence[Touch]], None]


class Tail:
    """Follows the log from its end at the time of the first `follow`."""

    def __init__(
        self,
        store: Store,
        *,
        recent_bytes_max: int = RECENT_BYTES_MAX,
        recent_segments_max: int = RECENT_SEGMENTS_MAX,
    ) -> None:
        self._store = store
        self.recent = Recent(recent_bytes_max, recent_segments_max)
        self._wakeup: Wakeup | None = None
        self._starting: asyncio.Task[None] | None = None
        self._followers: list[Follower] = []
        self._elsewhere: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        self._look_later: asyncio.TimerHandle | None = None
        self._committed_here = False
        self._listening = False
        self._started = False
        self._closed = False
        self.position = Lsn(0)
        # Where the last hole in the LSNs ended: segments that were dropped before they were told, of nobody knows whom.
        self.hole_through = Lsn(0)
        self.looks = 0
        self.useful_looks = 0

    @property
    def is_started(self) -> bool:
        """Whether it listens, and knows where the log ends."""
        return self._started

    def start(self, wakeup: Wakeup) -> None:
        """Get ready to be woken by this, once somebody follows."""
        self._wakeup = wakeup

    async def close(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._wakeup is not None:
            self._wakeup.close()
        if self._look_later is not None:
            self._look_later.cancel()
        if self._looking is not None:
            await self._looking

    async def listen(self) -> None:
        """Notice what others commit from now on, also when nobody follows."""
        if self._wakeup is None or self._closed:
            raise Closed("Headwater is closed")
        if not self._started:
            await self._listen(self._wakeup)

    async def follow(self, follower: Follower, elsewhere: Callable[[], None] | None = None) -> Callable[[], None]:
        """Call `follower` with new segments, from when this is answered; returns what ends that. It is called with
        none when the store is lost.

        `elsewhere` is called when another process has committed, whatever it was.
        """
        self._followers.append(follower)
        if elsewhere is not None:
            self._elsewhere.append(elsewhere)
        try:
            await self.listen()
        except BaseException:
            self._unfollow(follower, elsewhere)
            raise
        return lambda: self._unfollow(follower, elsewhere)

    async def join(self, follower: Follower, elsewhere: Callable[[], None] | None = None) -> None:
        """Follow for as long as the log is open; whoever has joined is not told twice for joining again."""
        if follower not in self._followers:
            await self.follow(follower, elsewhere)
        elif not self._started:
            await self.listen()

    def _unfollow(self, follower: Follower, elsewhere: Callable[[], None] | None) -> None:
        self._followers.remove(follower)
        if elsewhere is not None:
            self._elsewhere.remove(elsewhere)

    async def _listen(self, wakeup: Wakeup) -> None:
        """Begin to listen, together with whoever asks for it meanwhile."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._begin(wakeup), name="headwater-tail-start")
        await asyncio.shield(self._starting)

    async def _begin(self, wakeup: Wakeup) -> None:
        """Listen, then find the end of the log and look once: in this order nothing is missed."""
        if not self._listening:
            wakeup.start(self._woken)
            self._listening = True
        try:
            self.position = await self._store.ask(FindLastLsn())
        finally:
            self._starting = None
        self.recent.restart(self.position)
        self._started = True
        self._look()

    def lose(self, error: StoreReplaced) -> None:
        """The store is no more. Whoever follows is called with nothing new: asked again, the store says why."""
        self.recent.restart(self.position)
        for follower in list(self._followers):
            follower(())

    def defer(self, seconds: float) -> None:
        """Learn of what others commit so much later, from now on; whoever follows with more haste goes first."""
        if self._wakeup is not None:
            self._wakeup.defer(seconds)

    def committed(self, commit: Commit) -> None:
        """This process has committed: no need to ask, unless somebody else's segments lie before ours."""
        if not self._started:
            return
        self._committed_here = self._committed_here or commit.wrote
        if commit.added is None or commit.added.rewrote:
            self.recent.restart(self.position)
        if not commit.touched:
            return
        if commit.touched[0].lsn == self.position + 1 and self._looking is None:
            self.recent.add(commit)
            self._tell(commit.touched)
        elif commit.touched[-1].lsn > self.position:
            self._look()

    def _woken(self) -> Found:
        own, self._committed_here = self._committed_here, False
        if self._closed or self._wakeup is None or not self._wakeup.changed():
            return Found.OWN if own else Found.NOTHING
        self.recent.restart(self.position)
        self._look()
        for notice in self._elsewhere:
            notice()
        return Found.NEWS

    def _look(self) -> None:
        """Ask what is new: on the spot where the store can tell at once, otherwise in a task."""
        if not self._started or self._closed:
            return
        if self._look_later is not None:
            self._look_later.cancel()
        if self._looking is not None:
            self._look_again = True
            return
        try:
            while (touched := self._store.touched_now(self.position, LOOK_LIMIT)) is not None:
                self._looked(touched)
                if len(touched) < LOOK_LIMIT:
                    return
        except StoreReplaced:
            return
        except Exception as error:
            tell(log, NOT_READ, error)
            return
        self._looking = asyncio.get_running_loop().create_task(self._read_new(), name="headwater-tail")

    async def _read_new(self) -> None:
        """Ask until nothing is new. An error is told and ends only this look: the next wake asks again."""
        try:
            while not self._closed:
                self._look_again = False
                touched = await self._store.touched(self.position, LOOK_LIMIT)
                self._looked(touched)
                if not self._look_again and len(touched) < LOOK_LIMIT:
                    return
        except StoreReplaced:
            return
        except OUTAGES:
            # The wake-up has told of what is new, and need not do so again.
            self._look_later = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._look)
        except Exception as error:
            tell(log, NOT_READ, error)
        finally:
            self._looking = None

    def _looked(self, touched: Sequence[Touch]) -> None:
        self.looks += 1
        if touched:
            self.useful_looks += 1
            self.recent.restart(max(self.position, touched[-1].lsn))
            self._tell(touched)

    def _tell(self, touched: Sequence[Touch]) -> None:
        fresh = [touch for touch in touched if touch.lsn > self.position]
        if not fresh:
            return
        if fresh[-1].lsn - self.position != len(fresh):
            self.hole_through = fresh[-1].lsn
        self.position = fresh[-1].lsn
        for follower in list(self._followers):
            try:
                follower(fresh)
            except Exception:
                log.exception("a follower of the tail failed")
