"""Who may be spoken to under which name. Without authentication only this machine may connect, and a browser on it may
not be lent to a foreign page: a name that a stranger's DNS points at 127.0.0.1 is refused by its `Host`.
"""

import ipaddress
import re
from collections.abc import Awaitable, Collection
from functools import lru_cache

from headwater.doors.wire import Handler, Request, Response, problem_response

# Any name may be used: whoever stands in front has looked already.
ANY_NAME = "*"
# No host is called by more than 255 letters; what is longer need not be looked at, nor remembered.
_authority = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::[0-9]{0,5})?", re.ASCII)


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
    """The name in a `Host` header, in small letters and without its port: `[::1]:6632` is `[::1]`.

    '' where there is none: a header that others could read in another way, as `localhost:80@evil.example`, has no name.
    """
    found = _authority.fullmatch(header)
    return found[1].lower() if found else ""


def is_sound_host(header: str) -> bool:
    """Whether a `Host` header names a host, or says that there is none to name."""
    return not header or bool(host_name(header))


def with_sound_host(handler: Handler) -> Handler:
    """The same door, closed to requests whose `Host` names no host."""

    def answer(request: Request) -> Awaitable[Response]:
        return handler(request) if is_sound_host(request.headers.get("host", "")) else refuse_unsound(request)

    return answer


async def refuse_unsound(request: Request) -> Response:
    """The header is no name of a host."""
    return problem_response(400, "bad_request", "the Host header names no host", request_id=request.id)


def for_this_machine(handler: Handler, names: Collection[str] = ()) -> Handler:
    """The same door, closed to requests that were sent to a name that is not this machine's; `names` are, too."""
    own = frozenset(name.lower() for name in names)

    def answer(request: Request) -> Awaitable[Response]:
        name = host_name(request.headers.get("host", "localhost"))
        if name in own or is_loopback(name) or (ANY_NAME in own and name):
            return handler(request)
        return refuse_host(request, own)

    return answer


async def refuse_host(request: Request, own: Collection[str]) -> Response:
    """The name is not one of this machine's."""
    also = "".join(f", {name}" for name in sorted(own))
    detail = f"this server answers to localhost, 127.0.0.1, [::1]{also} only; allowed_hosts names others"
    return problem_response(403, "host_not_allowed", detail, request_id=request.id)
