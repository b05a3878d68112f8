"""What callers may need to know of a store on a server."""

from headwater.stores.contract import Traits
from headwater.stores.postgres.address import Address


def traits_of(address: Address, server_version: int = 0, beside: str = "") -> Traits:
    """The traits of a store; the server's version is known once it is connected to."""
    major, minor = divmod(server_version, 10_000)
    return Traits(
        name="postgresql",
        location=address.shown,
        engine=f"PostgreSQL {major}.{minor}" if major else "PostgreSQL",
        several_machines=True,
        durable_by="a synchronous commit behind every commit",
        beside=beside,
    )
