"""Certificates of this machine that nobody but a test trusts."""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Certificate(NamedTuple):
    """A certificate, signed by itself, and its key."""

    shown: Path
    kept: Path

    def server(self) -> ssl.SSLContext:
        """What a server shows it with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.shown, self.kept)
        return context


def make_certificate(folder: Path, address: str = "127.0.0.1") -> Certificate:
    """A fresh certificate for one address."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate = Certificate(folder / "server.pem", folder / "server.key")
    certificate.shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    certificate.kept.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate
