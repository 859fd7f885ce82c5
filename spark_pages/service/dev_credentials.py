"""Certificate, secret and token of a service that one person starts on one machine, to try it."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from spark_pages.errors import MissingDependencyError

try:
    import jwt
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
except ModuleNotFoundError as missing:
    raise MissingDependencyError(
        f"Cannot make a certificate: {str(missing.name).partition('.')[0]} is not installed.",
        hint='Install it: `pip install "spark-pages[service]"`.',
    ) from missing

VALID = timedelta(hours=24)
"""How long certificate and token are good."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Hosts that the certificate names."""

_EARLIER = timedelta(minutes=5)
"""Clocks of a virtual machine and its host may differ by so much."""


@dataclass(frozen=True, slots=True)
class DevCredentials:
    """What a service and its one client need.

    Attributes
    ----------
    certificate, private_key
        In PEM; the certificate is signed by its own key, and so is its own authority.
    secret, token
        The key of tokens, and a token that may read everything.
    """

    certificate: bytes
    private_key: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    token: str = field(repr=False)


def make_dev_credentials(
    audience: str, issuer: str | None = None, now: datetime | None = None
) -> DevCredentials:
    """Make new credentials, good for a day from now.

    Parameters
    ----------
    audience, issuer
        What the service expects ``aud`` and ``iss`` of tokens to be.
    """
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spark-pages serve --dev")])
    hosts: list[x509.GeneralName] = [x509.DNSName("localhost")]
    hosts += [x509.IPAddress(ipaddress.ip_address(each)) for each in LOOPBACK if each != "localhost"]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = secrets.token_hex(32).encode()
    claims = {"aud": audience, "exp": now + VALID, "scope": "read:*"}
    claims |= {} if issuer is None else {"iss": issuer}
    return DevCredentials(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        secret,
        jwt.encode(claims, secret, algorithm="HS256"),
    )
