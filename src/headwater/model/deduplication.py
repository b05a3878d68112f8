"""Transaction ids of the recent past, in bounded memory.

Membership only says "perhaps": an id is kept as its hash. The log is the truth, so a store looks there before it calls
a record a duplicate. Two generations take turns: when the younger one is full or old enough, the older one is dropped.
"""

from collections.abc import Iterable


class RecentIds:
    """A set that forgets: it holds at least the last `ids_max // 2` ids added, at most `ids_max`."""

    def __init__(self, ids_max: int) -> None:
        self._half = max(ids_max // 2, 1)
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @staticmethod
    def keys(scope: int, ids: Iterable[str]) -> list[int]:
        """What is remembered of these ids; the same id in another scope (a partition) is another key."""
        salt = hash((scope, "partition"))
        return [hash(identity) ^ salt for identity in ids]

    def perhaps_seen(self, keys: list[int]) -> bool:
        """False when none of the keys was added in the recent past."""
        return not (self._young.isdisjoint(keys) and self._old.isdisjoint(keys))

    def __contains__(self, key: int) -> bool:
        return key in self._young or key in self._old

    def add(self, keys: Iterable[int]) -> None:
        """Remember these keys."""
        self._young.update(keys)
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        """Forget everything."""
        self._young.clear()
        self._old.clear()
