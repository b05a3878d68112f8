"""While a tenant's pushes or pops are held off for maintenance: what every route that pushes or pops asks first."""

import asyncio

from headwater.doors.site import POP_SWITCH, PUSH_SWITCH, PUSHES_HELD_OFF, Site
from headwater.doors.wire import Refused, Request

RETRY_SECONDS = 5
# A client that waits would ask again at once; it is kept for a while, as if there were nothing.
POP_PAUSE_SECONDS = 1.0


async def check_pushes_taken(site: Site, request: Request) -> None:
    """Raises while pushes are held off."""
    if await _is_on(site, request, PUSH_SWITCH):
        raise Refused(503, "maintenance", PUSHES_HELD_OFF, (("retry-after", str(RETRY_SECONDS)),))


async def are_pops_held_off(site: Site, request: Request, seconds: float) -> bool:
    """Whether a pop that would wait for so long has nothing to expect; if so, it has waited for a while."""
    if not await _is_on(site, request, POP_SWITCH):
        return False
    if seconds:
        request.park()
        await asyncio.sleep(min(seconds, POP_PAUSE_SECONDS))
    return True


async def is_in_maintenance(site: Site, request: Request) -> bool:
    """Whether pushes or pops of the caller's database are held off."""
    return await _is_on(site, request, PUSH_SWITCH) or await _is_on(site, request, POP_SWITCH)


async def _is_on(site: Site, request: Request, name: str) -> bool:
    if site.switches.is_stale():
        await site.switches.refresh()
    return site.switches.any and site.switches.is_on(request.principal.database, name)
