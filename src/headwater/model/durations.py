"""Lengths of time as people write them: `90`, `45s`, `10m`, `12h`, `7d`, `2w`."""

import re

from headwater.errors import InvalidOption

_units = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_form = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_duration(text: str) -> float:
    """Seconds.

    >>> parse_duration("7d")
    604800.0
    """
    match = _form.fullmatch(text.strip().lower())
    if match is None or match[2] not in _units:
        raise InvalidOption(f"a length of time is a number with s, m, h, d or w, like 30s or 7d; got {text!r:.80}")
    return float(match[1]) * _units[match[2]]
