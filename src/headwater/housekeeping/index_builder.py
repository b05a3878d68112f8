"""Finishes indexes on documents: whoever declared one may have ended before all documents were in it."""

from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.document_operations import IndexDocuments
from headwater.stores.contract import Store
from headwater.stores.document_questions import ListUnfinishedIndexes

BITES_MAX = 100


class IndexBuilder(Periodic):
    """Takes documents in, some a commit, and goes on with the rest the next time."""

    name = "index-builder"

    def __init__(self, store: Store, committer: Committer, config: Config) -> None:
        super().__init__(committer, config)
        self._store = store

    async def run(self) -> int:
        """How many indexes were finished."""
        finished = bites = 0
        for database, pattern, field in await self._store.ask(ListUnfinishedIndexes()):
            ready = False
            while not ready and bites < BITES_MAX:
                bites += 1
                ready = (await self._submit(IndexDocuments(database=database, pattern=pattern, field=field))).ready
            finished += ready
        return finished
