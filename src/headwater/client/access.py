"""How a program finds what a server asks for: its token, and whom to trust. Nothing here shows a token."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address

import msgspec

from headwater.client.address import Address, check_token, parse_address, trust
from headwater.errors import ConfigError, Unauthenticated

TOKEN_VARIABLE = "HEADWATER_TOKEN"
TOKEN_FILE_VARIABLE = "HEADWATER_TOKEN_FILE"
TOKEN_BYTES_MAX = 8 * 1_024
RETRY_SECONDS = 60.0


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody said about it; what they did not say, the environment of the process that asks does."""

    token: str = ""
    token_file: str = ""
    certificates_file: str = ""
    """Certificates (PEM) that are trusted with https://; without it those that the system trusts."""
    retry_seconds: float = RETRY_SECONDS
    """For how long a request is repeated that meets no server, or a broken way to it."""

    def __repr__(self) -> str:
        shown = {**msgspec.structs.asdict(self), "token": "***" if self.token else ""}
        return f"Access({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def is_default(self) -> bool:
        """Whether nothing was said."""
        return self == Access()


def find_token(access: Access, environment: Mapping[str, str] | None = None) -> str:
    """The token that was given, that of the file that was named, or that of the environment; '' when there is none."""
    source = os.environ if environment is None else environment
    if access.token:
        return check_token(access.token)
    if access.token_file:
        return read_token(access.token_file)
    if token := source.get(TOKEN_VARIABLE, ""):
        return check_token(token)
    return read_token(path) if (path := source.get(TOKEN_FILE_VARIABLE, "")) else ""


def read_token(path: str) -> str:
    """The token in a file."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(TOKEN_BYTES_MAX).strip()
    except OSError as error:
        raise ConfigError(f"the file with the token cannot be read: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"the file with the token has no token: {path} is not plain ASCII") from None
    if not token:
        raise ConfigError(f"the file with the token is empty: {path}")
    return check_token(token)


def find_address(url: str, access: Access) -> Address:
    """The server at a URL. Tokens and records go over http:// only within this machine."""
    trusted = trust(access.certificates_file or None, "caFile") if url.startswith("https:") else None
    address = parse_address(url, trusted)
    if address.tls is None and access.certificates_file:
        raise ConfigError("a file of certificates is for addresses that begin with https://")
    if address.tls is None and not _is_this_machine(address.host):
        raise ConfigError(
            f"http:// shows the token and the records to whoever is on the way; use https:// for {address.host}, "
            "http:// is for 127.0.0.1, [::1] and localhost"
        )
    return address


@contextmanager
def telling_of_no_token(url: str, token: str) -> Iterator[None]:
    """Says where a token is looked for, when a server asks for one and there is none."""
    try:
        yield
    except Unauthenticated as error:
        if token:
            raise
        raise Unauthenticated(
            f"{url} asks for a token and this process has none: name the file that has it (--token-file, the option "
            f"tokenFile), or set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE} where the driver and the executors run"
        ) from error


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
