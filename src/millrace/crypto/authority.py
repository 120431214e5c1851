"""A certificate authority of one broker, for those who have none."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from millrace.config import ConfigError

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825


class Issued(NamedTuple):
    """A private key and its certificate, as PEM."""

    key: bytes
    certificate: bytes


def new_authority() -> Issued:
    """A new authority. Raises ConfigError if the package that it needs is missing."""
    return _issue("millrace", (), None, AUTHORITY_DAYS)


def issue(authority: Issued, hosts: Iterable[str]) -> Issued:
    """A certificate of a server that has these names and addresses."""
    return _issue("millrace broker", hosts, authority, CERTIFICATE_DAYS)


def _issue(name: str, hosts: Iterable[str], authority: Issued | None, days: int) -> Issued:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )
    except ImportError:
        raise ConfigError(
            "certificates need another package; run `pip install 'millrace[security]'`"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signer, issuer = key, subject
    if authority is not None:
        loaded = load_pem_private_key(authority.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    is_authority = authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ a little.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        builder.sign(signer, SHA256()).public_bytes(Encoding.PEM),
    )
