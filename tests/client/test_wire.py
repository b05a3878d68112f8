"""Our own wire carries operations as they are: what an operation gains, the wire must gain too."""

from typing import Any

import msgspec
import pytest

from headwater.doors.all_routes import ROUTES
from headwater.services.wire_forms import SERVER_SAYS, form, from_wire, operation_path, question_path, to_wire
from tests.doors.access.visits import fitting
from tests.doors.test_rules import OWN_ROUTES, SERVED

NAMES = {
    "queue": "orders",
    "partition": "lane",
    "group": "g",
    "transaction": "t0",
    "partition_id": "7",
    "job": "job1",
    "schedule": "nightly",
}
BY_PATH = {route.path: route for route in ROUTES}
KINDS = {operation_path(kind) if "key" in kind.__struct_fields__ else question_path(kind): kind for kind in SERVED}


@pytest.mark.parametrize("kind", [*SERVED, *OWN_ROUTES], ids=lambda kind: kind.__name__)
def test_every_field_of_an_operation_can_be_asked_for(kind: type[Any]) -> None:
    """But for those that a client may not choose; and nothing else can."""
    asked = {field.name for field in msgspec.structs.fields(form(kind))}
    assert set(kind.__struct_fields__) - SERVER_SAYS <= asked
    assert form(kind).__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("path", KINDS)
def test_what_a_client_says_is_what_the_server_understands(path: str) -> None:
    """With something in every field that could name something; the database is the server's to say."""
    sent = msgspec.json.encode(fitting(BY_PATH[path], NAMES))
    asked = from_wire(msgspec.json.decode(sent, type=form(KINDS[path])), database="theirs")
    again = msgspec.json.encode(to_wire(asked))
    assert b"theirs" not in again
    assert from_wire(msgspec.json.decode(again, type=form(KINDS[path])), database="theirs") == asked


@pytest.mark.parametrize("field", sorted(SERVER_SAYS))
def test_what_the_server_says_is_refused_from_a_client(field: str) -> None:
    for path, kind in KINDS.items():
        body = msgspec.json.encode({**fitting(BY_PATH[path], NAMES), field: 1})
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.json.decode(body, type=form(kind))
