"""Behind a proxy: the client is whom the proxy names, if the proxy is one of those that were configured."""

import ipaddress
from collections.abc import Awaitable, Sequence

import msgspec

from headwater.doors.wire import Handler, Request, Response
from headwater.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, with commas between them: `127.0.0.1, 10.0.0.0/8`."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigError(f"trusted proxies are addresses or networks with commas between them: {error}") from error


def behind_proxies(handler: Handler, networks: Sequence[Network]) -> Handler:
    """The same door; a request from one of these addresses is of the client that `X-Forwarded-For` names.

    The header is read from its end, because only what a trusted proxy added is true: the last address that is not a
    trusted one is the client. From anybody else the header says nothing.
    """

    def answer(request: Request) -> Awaitable[Response]:
        if "x-forwarded-for" in request.headers and _is_among(request.client, networks):
            client = _client(request.headers["x-forwarded-for"], networks) or request.client
            request = msgspec.structs.replace(request, client=client)
        return handler(request)

    return answer


def _client(header: str, networks: Sequence[Network]) -> str:
    client = ""
    for part in reversed(header.split(",")):
        address = part.strip()
        if not _is_address(address):
            break
        client = address
        if not _is_among(address, networks):
            break
    return client


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_among(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
