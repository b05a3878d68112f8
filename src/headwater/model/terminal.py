"""Foreign text for a terminal or a log: what would steer the one, or forge a line of the other, is shown escaped.

C0 and C1 controls but tab, and what turns the order of text around or breaks lines without looking like it.
"""

_STEERING = (*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_CONTROLS = {code: f"\\u{code:04x}" for code in _STEERING if code != 9}
_CONTROLS_BUT_LINES = {code: text for code, text in _CONTROLS.items() if code != 10}
# What JSON leaves as it is. In its texts, and nowhere else, such characters may stand, and there the escape means them.
_CONTROLS_IN_JSON = {code: text for code, text in _CONTROLS.items() if code >= 127}


def clean(text: str) -> str:
    """Foreign text on one line."""
    return text.translate(_CONTROLS)


def clean_lines(text: str) -> str:
    """Foreign text whose lines stay lines."""
    return text.translate(_CONTROLS_BUT_LINES)


def clean_json(text: str) -> str:
    """The same JSON without anything that would steer a terminal."""
    return text.translate(_CONTROLS_IN_JSON)


def clean_entry(text: str) -> str:
    """An entry of a log: of its lines only the first stands at the beginning of one."""
    return clean_lines(text).replace("\n", "\n    ")
