"""Who may be spoken to under which name. Without authentication only this machine may connect, and a browser on it may
not be lent to a foreign page: a name that a stranger's DNS points at 127.0.0.1 is refused by its `Host`.
"""

import ipaddress
from functools import lru_cache

from headwater.doors.wire import Handler, Request, Response, problem_response


@lru_cache(maxsize=1_024)
def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine and nobody else."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a `Host` header, without its port: `localhost:6632` is `localhost`, `[::1]:6632` is `[::1]`."""
    if header.startswith("["):
        name, bracket, _ = header.partition("]")
        return name + bracket
    return header.partition(":")[0]


def for_this_machine(handler: Handler) -> Handler:
    """The same door, closed to requests that were sent to a name that is not this machine's."""

    async def answer(request: Request) -> Response:
        host = request.headers.get("host", "localhost")
        if is_loopback(host_name(host)):
            return await handler(request)
        detail = "this server answers to localhost, 127.0.0.1 and [::1] only"
        return problem_response(403, "host_not_allowed", detail, request_id=request.id)

    return answer
