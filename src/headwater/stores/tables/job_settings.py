"""Settings of jobs under the write lock. Whatever changes here is told to the workers, which look at it again."""

from headwater.clock import Timestamp
from headwater.log.job_operations import Changed, Limited, PauseJobs, RegisterTypes, SetJobConfig, SetJobLimit
from headwater.stores.tables.job_books import JobBooks
from headwater.stores.tables.job_lanes import JobLanes
from headwater.stores.tables.job_queues import JobQueues
from headwater.stores.tables.job_types import JobTypes
from headwater.stores.tables.subject import Handlers


class JobSettings:
    """What holds for the jobs of databases, queues and types."""

    def __init__(self, queues: JobQueues, types: JobTypes, lanes: JobLanes, books: JobBooks) -> None:
        self._queues = queues
        self._types = types
        self._lanes = lanes
        self._books = books

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {
            SetJobConfig: self.configure,
            PauseJobs: self.pause,
            SetJobLimit: self.limit,
            RegisterTypes: self.register,
        }

    def configure(self, operation: SetJobConfig, now: Timestamp) -> Changed:
        """Remember or forget one setting."""
        return self._logged(operation.database, self._queues.configure(operation))

    def pause(self, operation: PauseJobs, now: Timestamp) -> Changed:
        """Hand out the jobs of a queue, or do not."""
        return self._logged(operation.database, self._queues.pause(operation))

    def register(self, operation: RegisterTypes, now: Timestamp) -> Changed:
        """Remember how functions are to be run."""
        return self._logged(operation.database, self._types.register(operation, now))

    def limit(self, operation: SetJobLimit, now: Timestamp) -> Limited:
        """Give a type of job limits."""
        limited = self._lanes.limit(operation, now)
        self._books.control(operation.database, "configured", operation.type)
        return limited

    def _logged(self, database: str, changed: Changed) -> Changed:
        if changed.ids:
            self._books.control(database, "configured", changed.ids[0])
        return changed
