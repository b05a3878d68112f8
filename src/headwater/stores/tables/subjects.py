"""All subjects of a store, each made with those that it needs. A new one is a line here, and one in `answers.py`."""

from collections.abc import Callable

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.stores.codec import Codec
from headwater.stores.tables.access_tokens import AccessTokens
from headwater.stores.tables.applied import Applied
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.clock_jumps import ClockJumps
from headwater.stores.tables.connection import WriterConnection
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.damage import Damage
from headwater.stores.tables.dead_letters import DeadLetters
from headwater.stores.tables.delayed import Delayed
from headwater.stores.tables.document_rules import DocumentRules
from headwater.stores.tables.documents import Documents
from headwater.stores.tables.flows import Flows
from headwater.stores.tables.groups import Groups
from headwater.stores.tables.identity import Identity, Lose
from headwater.stores.tables.jobs import Jobs
from headwater.stores.tables.milestones import Milestones
from headwater.stores.tables.pops import Pops
from headwater.stores.tables.pushes import Pushes
from headwater.stores.tables.queues import Queues
from headwater.stores.tables.repeated_pops import RepeatedPops
from headwater.stores.tables.reports import Reports
from headwater.stores.tables.retention import Retention
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.staging import Staging
from headwater.stores.tables.streams import Streams
from headwater.stores.tables.subject import Subject
from headwater.stores.tables.switches import Switches
from headwater.stores.tables.traces import Traces


class Subjects:
    """The subjects of one store. `set_back` tells all of them that the clock was set back."""

    def __init__(
        self,
        connection: WriterConnection,
        config: Config,
        codec: Codec,
        origin: int,
        lose: Lose,
        set_back: Callable[[Timestamp, int], None],
    ) -> None:
        self.identity = Identity(connection, lose)
        catalog = self.catalog = Catalog(connection, codec)
        segments = self.segments = Segments(connection, codec, origin, config.deduplication_ids_max)
        self.clock_jumps = ClockJumps(connection, segments, set_back)
        delayed = Delayed(connection, codec, catalog, segments)
        pushes = self.pushes = Pushes(connection, catalog, segments, delayed)
        letters = DeadLetters(connection, codec, catalog, segments, pushes)
        cursors = self.cursors = Cursors(connection, catalog, segments, letters)
        pops = Pops(connection, catalog, segments, cursors, delayed)
        self.reports = Reports(connection, catalog, segments, cursors, pops, delayed)
        self.applied = Applied(connection)
        self.repeated_pops = RepeatedPops(self.applied, catalog, segments, cursors, self.reports)
        queues = Queues(connection, catalog, segments, cursors)
        self.access_tokens = AccessTokens(connection)
        self.jobs = Jobs(connection, catalog, segments, path=connection.location)
        # Hooks are called in this order: what is no more the store that was opened is found out first; the clock is
        # looked at before a commit does anything, and what is due is appended before anything else is.
        self.all: tuple[Subject, ...] = (
            self.identity,
            catalog,
            self.clock_jumps,
            segments,
            delayed,
            pushes,
            letters,
            cursors,
            pops,
            self.reports,
            self.repeated_pops,
            queues,
            Groups(connection, catalog, cursors, self.reports.clear_partition),
            Retention(connection, catalog, segments, pops.meet_partition, queues.remove),
            Damage(connection, catalog, segments, cursors),
            Flows(connection, catalog, segments, pushes.place),
            Staging(connection, config.staged_bytes_max),
            Streams(connection),
            Traces(connection, codec, catalog),
            Switches(connection),
            Milestones(connection),
            self.access_tokens,
            self.jobs,
            self.jobs.books,
            self.jobs.workers,
            Documents(connection, catalog, segments, config.record_bytes_max),
            DocumentRules(connection, self.access_tokens),
        )
