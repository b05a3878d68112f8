"""Segments less the records that a filter leaves out, before anything is typed: what is left out need fit no schema.

What is left of a segment is one segment for each run of its records, so that offsets stay what they are.
"""

from collections.abc import Iterator
from itertools import groupby

import msgspec

from headwater.filters.spark import Meant, judge_of, parse_for_payloads
from headwater.pipeline.planning import part_of, split_body
from headwater.stores.log_reader import Body


class _Carried(msgspec.Struct):
    data: msgspec.Raw


_payloads = msgspec.json.Decoder(list[_Carried])


class Sieve:
    """Lets those records through that a filter means; all of them when there is none."""

    def __init__(self, text: str) -> None:
        self._meant: Meant | None = judge_of(parse_for_payloads(text)) if text else None

    def sift(self, bodies: list[Body]) -> list[Body]:
        """What is left of some segments."""
        meant = self._meant
        return bodies if meant is None else [run for body in bodies for run in _runs(body, meant)]


def _runs(body: Body, meant: Meant) -> Iterator[Body]:
    kept = [meant(memoryview(record.data)) for record in _payloads.decode(body.records)]
    if all(kept):
        yield body
    elif any(kept):
        records = split_body(body)
        for is_kept, places in groupby(range(len(kept)), kept.__getitem__):
            run = list(places)
            if is_kept:
                yield part_of(body, records, run[0], run[-1] + 1)
