"""What is turned on for a database, for every server on the store."""

from headwater.clock import Timestamp
from headwater.log.operations import SetSwitch, Switched
from headwater.stores.questions import ListSwitches
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

# Database, name.
SwitchRow = tuple[str, str]


class Switches(Subject):
    """All switches, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {SetSwitch: self.set}

    def set(self, operation: SetSwitch, now: Timestamp) -> Switched:
        """Turn something on or off."""
        if operation.is_on:
            self._connection.run(self._sql.turn_on, (operation.database, operation.name, now))
        else:
            self._connection.run(self._sql.turn_off, (operation.database, operation.name))
        return Switched(operation.is_on)


class SwitchAnswers(SubjectAnswers):
    """Reads switches."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListSwitches: self.switches}

    def switches(self, asked: ListSwitches) -> list[tuple[str, str]]:
        """What is turned on."""
        return self._connection.rows(self._sql.switches, (), SwitchRow)
