"""What a flow came to: named figures for people and programs, and whether anything was quarantined."""

from typing import Any

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run. `facts` are shown in their order."""

    flow: str
    facts: dict[str, Any]
    quarantined: int = 0
