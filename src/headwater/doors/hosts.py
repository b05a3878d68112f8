"""Who may be spoken to under which name. Without authentication only this machine may connect, and a browser on it may
not be lent to a foreign page: a name that a stranger's DNS points at 127.0.0.1 is refused by its `Host`.
"""

import ipaddress
from collections.abc import Collection

from headwater.doors.wire import Handler, Request, Response, problem_response

KNOWN_MAX = 100


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
    known: set[str] = set()

    async def answer(request: Request) -> Response:
        host = request.headers.get("host", "localhost")
        if host in known:
            return await handler(request)
        name = host_name(host).lower()
        if name in own or is_loopback(name):
            # Few are right and each comes again and again; reading an address takes longer than the rest of this.
            if len(known) < KNOWN_MAX:
                known.add(host)
            return await handler(request)
        also = "".join(f", {name}" for name in sorted(own))
        detail = f"this server answers to localhost, 127.0.0.1, [::1]{also} only"
        return problem_response(403, "host_not_allowed", detail, request_id=request.id)

    return answer
