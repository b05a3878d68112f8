"""The certificate that `serve` shows. One that was renewed is shown from the next connection on."""

import logging
import os
import ssl
from pathlib import Path

from headwater.errors import ConfigError

log = logging.getLogger(__name__)


def make_tls(certificate: str, key: str) -> ssl.SSLContext | None:
    """The certificate, ready to be shown; None for plain HTTP."""
    if certificate:
        return Shown(certificate, key).context
    if key:
        raise ConfigError("--certificate-key needs --certificate")
    return None


class Shown:
    """A certificate in files that others may replace. When they cannot be used, as between the writing of the one and
    of the other, what was read before is shown on."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate, self._key = certificate, key
        self._seen = self._look()
        self.context = self._now = self._load()
        # Asked with each handshake, whether a client names a server or not.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            self._renew()
        connection.context = self._now

    def _renew(self) -> None:
        try:
            self._now = self._load()
        except ConfigError as error:
            log.error("the certificate was replaced, and the one before is shown on: %s", error)
        else:
            log.warning("the certificate in %s was replaced: it is shown from now on", self._certificate)

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What changes when one of the files does."""
        return [_stamp(path) for path in (self._certificate, self._key) if path]

    def _load(self) -> ssl.SSLContext:
        for option, path in (("--certificate", self._certificate), ("--certificate-key", self._key)):
            _check_readable(option, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key or None)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or error
            kept = f"--certificate-key {self._key}" if self._key else "no --certificate-key, so the key is in that file"
            raise ConfigError(
                f"--certificate {self._certificate} (PEM, with its chain; {kept}) cannot be used: {reason}"
            ) from error
        return context


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _check_readable(option: str, path: str) -> None:
    try:
        if path:
            Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror or error}") from error
