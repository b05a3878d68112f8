"""What of a store in a bucket can be told by whoever meets its objects: names in its log, and the label in its base.

Files and buckets look for it before they make a store: a folder can be both, and a place has one store.
"""

import re

# Twenty bytes of SQLite's header are kept for later by its format, and no SQLite looks at them: the label of a base.
LABEL = slice(72, 92)
LOG = "-log"
SECRET = "-secret"

_entry = re.compile(r"\d{12}")
_note = re.compile(r"\d{12}-[0-9a-f]{12}")


def is_entry(name: str) -> bool:
    """Whether an object of a log is an entry of a chain, or what images have in its place, by its name in there."""
    return _entry.fullmatch(name) is not None


def is_note(name: str) -> bool:
    """Whether it says how an epoch of images began."""
    return _note.fullmatch(name) is not None
