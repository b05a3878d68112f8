"""How far a capture is, as it is kept in the log with the changes that lead up to there."""

import msgspec

from headwater.errors import StoreDamaged

# What the steps of captures are called, before their names.
STEPS = "capture/"


class CaptureState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position in the source and what was last known of it; `copying` while a first copy is made, `dropped` since
    it was given up."""

    position: str = ""
    copying: bool = False
    dropped: bool = False
    queue: str = ""
    changes: int = 0
    lag_bytes: int | None = None
    kept_bytes: int | None = None
    kept_bytes_max: int | None = None
    alarm: str = ""

    @property
    def is_followed(self) -> bool:
        """Whether there is such a capture: one that was refused when it began leaves an empty state."""
        return self != CaptureState() and not self.dropped


def encode_state(state: CaptureState) -> str:
    """The note of a step."""
    return msgspec.json.encode(state).decode()


def decode_state(note: str) -> CaptureState:
    """What a note says."""
    try:
        return msgspec.json.decode(note, type=CaptureState)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the position of a capture cannot be read: {error}") from error
