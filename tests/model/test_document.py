"""Documents as they are kept: one text for the same values, however it was made."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError
from headwater.model.document import Document, Fields, body_of, encode_fields, flat_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3))
NOW = Timestamp(5_000_000)


@given(st.dictionaries(st.text() | st.sampled_from(["id", "version"]), VALUES, max_size=6), st.text(min_size=1))
def test_a_body_that_is_put_together_from_text_is_the_one_that_would_be_written(fields: Fields, name: str) -> None:
    try:
        own = encode_fields(fields, 1_000_000)
    except HeadwaterError:
        return
    written = flat_of("a/b/c", name, msgspec.json.decode(own), 7, 1_000, NOW, deleted=False)
    assert bytes(body_of("a/b/c", name, own, 7, 1_000, NOW)) == msgspec.json.encode(written)


def test_a_document_that_is_printed_shows_its_fields() -> None:
    body = msgspec.Raw(b'{"id":"a","text":"Hello","collection":"notes","version":2,"createdAt":1,"updatedAt":1}')
    document = Document("notes", "a", 2, False, body)
    assert repr(document) == "Document('notes/a', version=2, {'text': 'Hello'})"
    assert repr(document.tombstone()) == "Document('notes/a', version=2, deleted)"
    assert repr(document.receipt()) == "Document('notes/a', version=2, {})"
