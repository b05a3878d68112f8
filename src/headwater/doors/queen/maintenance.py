"""`/api/v1/system/maintenance…`: a tenant's pushes or pops are held off while somebody works on what is behind them.

The switches are kept in the store, so every server on it obeys them, and a restart does not forget them.
"""

from msgspec import Struct

from headwater.doors.site import POP_SWITCH, PUSH_SWITCH, Site
from headwater.doors.wire import Request, Response, json_response
from headwater.log.operations import SetSwitch
from headwater.model.principal import Scope, require_all


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
    # It holds for every queue of the database.
    require_all(request.principal, Scope.ADMIN)
    await site.queues.run(SetSwitch(database=request.principal.database, name=name, is_on=is_on))
    await site.switches.refresh()
    return json_response(_state(site, request))


def _state(site: Site, request: Request) -> Maintenance:
    database = request.principal.database
    push, pop = site.switches.is_on(database, PUSH_SWITCH), site.switches.is_on(database, POP_SWITCH)
    said = {(False, False): "everything is served", (True, False): "pushes are held off"}
    message = said.get((push, pop), "pushes and pops are held off" if push else "pops are held off")
    return Maintenance(maintenance_mode=push, pop_maintenance_mode=pop, message=message)
