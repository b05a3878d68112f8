"""The client while a tenant's pushes or pops are held off: the switches hold on every wire."""

import pytest

import headwater
from headwater.client.client import Client
from headwater.doors.site import POP_SWITCH, PUSH_SWITCH
from headwater.errors import ServerError
from headwater.log.operations import SetSwitch
from tests.client.server import Server


async def hold(server: Server, switch: str) -> None:
    """Turned on before the server's first look at its switches."""
    await server.hw.committer.submit(SetSwitch(name=switch, is_on=True))


async def test_pushes_that_are_held_off_change_nothing(server: Server) -> None:
    await hold(server, PUSH_SWITCH)
    async with headwater.connect(server.url, retry_seconds=0) as client:
        with pytest.raises(ServerError, match="maintenance"):
            await client.queue("orders").push(1)
        with pytest.raises(ServerError, match="maintenance"):
            async with client.transaction() as together:
                together.push("orders", 1)
    assert await server.hw.queues() == []


async def test_what_was_done_is_settled_though_pops_are_held_off(server: Server, client: Client) -> None:
    await server.hw.queue("orders").push_many([1, 2])
    messages = await server.hw.queue("orders").pop()
    await hold(server, POP_SWITCH)
    assert await client.queue("orders").pop(ack=messages) == []
    (group,) = await server.hw.queue("orders").groups()
    assert (group.lag, group.leased) == (1, 0)
