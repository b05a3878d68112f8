"""Finishes indexes on documents: whoever declared one may have ended before all documents were in it.

One that cannot be finished, because a value is too long to be a key, is taken back by the commit that finds it. Nobody
waits for the answer, so it is logged. Others are finished all the same: they may be another tenant's.
"""

import logging

from headwater.config import Config
from headwater.errors import InvalidPayload
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.document_operations import IndexDocuments
from headwater.stores.contract import Store
from headwater.stores.document_questions import ListUnfinishedIndexes

log = logging.getLogger(__name__)

BITES_MAX = 100


class IndexBuilder(Periodic):
    """Takes documents in, some a commit, and goes on with the rest the next time."""

    name = "index-builder"

    def __init__(self, store: Store, committer: Committer, config: Config) -> None:
        super().__init__(committer, config)
        self._store = store
        self._bites = 0

    async def run(self) -> int:
        """How many indexes were finished."""
        self._bites = 0
        finished = 0
        for database, pattern, field in await self._store.ask(ListUnfinishedIndexes()):
            try:
                finished += await self._finish(IndexDocuments(database=database, pattern=pattern, field=field))
            except InvalidPayload as error:
                log.warning("an index of the database %s was taken back: %s", database, error)
        return finished

    async def _finish(self, operation: IndexDocuments) -> bool:
        ready = False
        while not ready and self._bites < BITES_MAX:
            self._bites += 1
            ready = (await self._submit(operation)).ready
        return ready
