"""`/api/v1/system/maintenance…`: a tenant's pushes or pops are held off while somebody works on what is behind them.

The switches are kept in the store, so every server on it obeys them, and a restart does not forget them.
"""

import asyncio

from msgspec import Struct

from headwater.doors.site import POP_SWITCH, PUSH_SWITCH, Site
from headwater.doors.wire import NOTHING, Refused, Request, Response, json_response
from headwater.log.operations import SetSwitch

RETRY_SECONDS = 5
# A client that waits would ask again at once; it is kept for a while, as if there were nothing.
POP_PAUSE_SECONDS = 1.0


class SwitchBody(Struct, frozen=True):
    """On or off."""

    enabled: bool


class Maintenance(Struct, frozen=True, rename="camel"):
    """What is held off."""

    maintenance_mode: bool
    pop_maintenance_mode: bool
    message: str


async def show_maintenance(site: Site, request: Request) -> Response:
    """What is held off."""
    await site.switches.refresh()
    return json_response(_state(site, request))


async def set_push_maintenance(site: Site, request: Request, body: SwitchBody) -> Response:
    """Hold pushes off, or take them again."""
    return await _switch(site, request, PUSH_SWITCH, body.enabled)


async def set_pop_maintenance(site: Site, request: Request, body: SwitchBody) -> Response:
    """Hold pops off, or serve them again."""
    return await _switch(site, request, POP_SWITCH, body.enabled)


async def _switch(site: Site, request: Request, name: str, is_on: bool) -> Response:
    await site.queues.run(SetSwitch(database=request.principal.database, name=name, is_on=is_on))
    await site.switches.refresh()
    return json_response(_state(site, request))


def _state(site: Site, request: Request) -> Maintenance:
    database = request.principal.database
    push, pop = site.switches.is_on(database, PUSH_SWITCH), site.switches.is_on(database, POP_SWITCH)
    said = {(False, False): "everything is served", (True, False): "pushes are held off"}
    message = said.get((push, pop), "pushes and pops are held off" if push else "pops are held off")
    return Maintenance(maintenance_mode=push, pop_maintenance_mode=pop, message=message)


async def check_pushes_taken(site: Site, request: Request) -> None:
    """Raises while pushes are held off."""
    if site.switches.is_stale():
        await site.switches.refresh()
    if site.switches.any and site.switches.is_on(request.principal.database, PUSH_SWITCH):
        detail = "pushes are held off for maintenance; try again later"
        raise Refused(503, "maintenance", detail, (("retry-after", str(RETRY_SECONDS)),))


async def held_off(site: Site, request: Request, seconds: float) -> Response | None:
    """The answer to a pop while pops are held off; None when they are not."""
    if site.switches.is_stale():
        await site.switches.refresh()
    if not site.switches.any or not site.switches.is_on(request.principal.database, POP_SWITCH):
        return None
    if seconds:
        request.park()
        await asyncio.sleep(min(seconds, POP_PAUSE_SECONDS))
    return NOTHING
