"""Our own wire carries operations as they are: what an operation gains, the wire must gain too."""

import pytest
from msgspec import Struct

from headwater.log import group_operations, operations
from headwater.services import requests

# What an operation has and its request does not, because a client may not choose it.
SERVER_SAYS = {"database", "sharers", "lanes", "asks_again"}


@pytest.mark.parametrize(
    ("operation", "request_kind"),
    [
        (operations.Pop, requests.PopRequest),
        (operations.Ack, requests.Report),
        (operations.Configure, requests.ConfigureRequest),
        (operations.DeleteQueue, requests.DeleteQueueRequest),
        (operations.Seek, requests.SeekRequest),
        (operations.DeleteGroup, requests.DeleteGroupRequest),
        (group_operations.ConfigureGroup, requests.ConfigureGroupRequest),
        (group_operations.ReleaseLeases, requests.ReleaseLeasesRequest),
        (operations.Requeue, requests.RequeueRequest),
        (operations.Purge, requests.DeadLettersRequest),
        (operations.Trace, requests.TraceRequest),
    ],
)
def test_every_field_of_an_operation_can_be_asked_for(operation: type[Struct], request_kind: type[Struct]) -> None:
    assert set(operation.__struct_fields__) - SERVER_SAYS <= set(request_kind.__struct_fields__)
