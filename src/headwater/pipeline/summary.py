"""What a flow came to: named figures for people and programs, whether anything was quarantined, and what speaks against
going on."""

from typing import Any

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run. `facts` are shown in their order; `refused` says why whoever waits for it should not go on."""

    flow: str
    facts: dict[str, Any]
    quarantined: int = 0
    refused: str = ""
