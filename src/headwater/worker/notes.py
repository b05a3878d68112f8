"""What running jobs have told of themselves, kept until the next heartbeat carries it."""

import msgspec

from headwater.log.job_operations import Note
from headwater.model.job import JobNumber


class Notes:
    """The newest progress and output of each job: a job may report a thousand times a second."""

    def __init__(self) -> None:
        self._notes: dict[JobNumber, Note] = {}

    def __bool__(self) -> bool:
        return bool(self._notes)

    def add(self, note: Note) -> None:
        """Keep a note; what it leaves unsaid stays as the one before it said."""
        before = self._notes.get(note.number)
        if before is not None and before.token == note.token:
            note = msgspec.structs.replace(
                note,
                progress=before.progress if note.progress is None else note.progress,
                output=before.output if note.output is None else note.output,
            )
        self._notes[note.number] = note

    def take(self) -> tuple[Note, ...]:
        """All of them; they are told then."""
        notes, self._notes = self._notes, {}
        return tuple(notes.values())
