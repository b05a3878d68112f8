"""Who may be spoken to under which name. Without authentication only this machine may connect, and a browser on it may
not be lent to a foreign page: a name that a stranger's DNS points at 127.0.0.1 is refused by its `Host`.
"""

import ipaddress
from collections.abc import Awaitable, Collection
from functools import lru_cache

from headwater.doors.wire import Handler, Request, Response, problem_response

# No host is called by more; what is longer need not be looked at, nor remembered.
NAME_LENGTH_MAX = 255


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


def for_this_machine(handler: Handler, names: Collection[str] = ()) -> Handler:
    """The same door, closed to requests that were sent to a name that is not this machine's; `names` are, too."""
    own = frozenset(name.lower() for name in names)

    def answer(request: Request) -> Awaitable[Response]:
        name = host_name(request.headers.get("host", "localhost")).lower()
        if name in own or (len(name) <= NAME_LENGTH_MAX and is_loopback(name)):
            return handler(request)
        return refuse_host(request, own)

    return answer


async def refuse_host(request: Request, own: Collection[str]) -> Response:
    """The name is not one of this machine's."""
    also = "".join(f", {name}" for name in sorted(own))
    detail = f"this server answers to localhost, 127.0.0.1, [::1]{also} only"
    return problem_response(403, "host_not_allowed", detail, request_id=request.id)
