"""Names that stand twice in one JSON object: a decoder takes one of the two, and nobody knows which is meant."""

import json
import re

from headwater.errors import InvalidInput

_names = re.compile(rb'"([^"]*)"\s*:')


# What producers say is theirs, and is kept as they wrote it.
_of_producers = frozenset({"payload", "data"})


def check_names(text: bytes) -> None:
    """Raises when an object has a name twice, payloads apart: which of the two is meant, nobody knows."""
    names = _names.findall(text)
    if len(set(names)) == len(names) and b"\\" not in text:
        return
    # Requests for several things say the same names of each. Only where one object has a name twice it matters which.
    objects: list[list[tuple[str, object]]] = []
    json.loads(text, object_pairs_hook=objects.append)
    if sum(map(len, map(dict, objects))) < sum(map(len, objects)):
        _check_pairs(json.loads(text, object_pairs_hook=_Pairs))


class _Pairs(list[tuple[str, object]]):
    """An object with all the names it was written with."""


def _check_pairs(value: object) -> None:
    if isinstance(value, _Pairs):
        names = [name for name, _ in value]
        if len(set(names)) < len(names):
            twin = next(name for name in names if names.count(name) > 1)
            raise InvalidInput(f"{twin!r:.80} stands twice in one object")
        for name, inner in value:
            if name not in _of_producers:
                _check_pairs(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_pairs(inner)
