"""The order of documents in the answer to a query, and cursors: places in it that clients hold."""

import base64
import binascii
from collections.abc import Sequence
from hashlib import blake2s
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from headwater.errors import InvalidOption
from headwater.model.document import Document, Fields, OrderBy, value_at
from headwater.model.order_key import order_key


class QueryCursor(NamedTuple):
    """A place in an order: the keys of a document's values, and its id."""

    keys: tuple[bytes, ...]
    id: str


class Down:
    """A key that counts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: bytes | str) -> None:
        self.key: Any = key

    def __lt__(self, other: "Down") -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Down) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


Place = tuple[Any, ...]


def place_of(cursor: QueryCursor, order: Sequence[OrderBy]) -> Place:
    """What orders documents: the values of the fields asked for, then the id, in the direction of the last of them."""
    keys = [Down(key) if by.direction == "desc" else key for key, by in zip(cursor.keys, order, strict=True)]
    is_down = bool(order) and order[-1].direction == "desc"
    return (*keys, Down(cursor.id) if is_down else cursor.id)


def cursor_of(flat: Fields, order: Sequence[OrderBy]) -> QueryCursor:
    """The place of a document."""
    return QueryCursor(tuple(order_key(value_at(flat, by.field)) for by in order), flat["id"])


def count_within(documents: Sequence[Document], bytes_max: int) -> int:
    """How many of the first ones have so many bytes together; one in any case."""
    if sum([len(document.body) for document in documents]) <= bytes_max:
        return max(1, len(documents))
    sizes = accumulate(len(document.body) for document in documents)
    return max(1, sum(1 for size in sizes if size <= bytes_max))


class Foremost:
    """Of documents that come in any order, the first ones in the order of a query: so many, and none behind the one
    that makes them larger than so many bytes. What comes behind those is let go on the way."""

    def __init__(self, limit: int, bytes_max: int) -> None:
        self._limit = limit
        self._bytes_max = bytes_max
        self._kept: list[tuple[Place, Document]] = []
        self._bytes = 0

    def add(self, place: Place, document: Document) -> None:
        """One more, which has this place in the order."""
        self._kept.append((place, document))
        self._bytes += len(document.body)
        if len(self._kept) > 2 * self._limit or self._bytes > 2 * self._bytes_max:
            self._let_go()

    def documents(self) -> list[Document]:
        """The first ones, in order."""
        self._let_go()
        return [document for _, document in self._kept]

    def _let_go(self) -> None:
        self._kept.sort(key=itemgetter(0))
        within = count_within([document for _, document in self._kept], self._bytes_max)
        del self._kept[min(self._limit, within + 1) :]
        self._bytes = sum(len(document.body) for _, document in self._kept)


def cursor_mark(collection: str, order: Sequence[OrderBy]) -> str:
    """What a cursor belongs to, in short: a collection and an order. In others its place means nothing."""
    return blake2s(msgspec.json.encode((collection, tuple(order))), digest_size=4).hexdigest()


def write_cursor(cursor: QueryCursor, mark: str = "") -> str:
    """A cursor as clients hold it, with the mark of what it belongs to."""
    text = msgspec.json.encode([mark, *[key.hex() for key in cursor.keys], cursor.id])
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def read_cursor(text: str, keys_count: int, mark: str = "") -> QueryCursor | None:
    """The cursor in what a client sent, with so many keys and this mark; None where there is none."""
    if not text:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        plain = base64.b64decode(padded, altchars=b"-_", validate=True)
        found_mark, *keys, name = msgspec.json.decode(plain, type=list[str])
        found = QueryCursor(tuple(map(bytes.fromhex, keys)), name)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidOption("a cursor is what an earlier answer of the same query gave (nextCursor)") from error
    if found_mark != mark or len(found.keys) != keys_count:
        raise InvalidOption("this cursor is of another collection, or of a query with another order")
    return found
