"""A certificate authority for tests, and files of its certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

PASSWORD = "store-secret"


class Authority:
    """Issues certificates, and writes them as clients and brokers want them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ca = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))

    def pem(self, name: str, *hosts: str, common_name: str | None = None, **details: object) -> Path:
        """A file with a private key and its certificate."""
        issued = self._ca.issue_cert(*(hosts or (name,)), common_name=common_name, **details)
        path = self.directory / f"{name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def pkcs12(self, name: str, *hosts: str) -> Path:
        """The same as an encrypted PKCS#12 store."""
        content = self.pem(f"{name}-source", *hosts).read_bytes()
        key = load_pem_private_key(content, None)
        certificates = x509.load_pem_x509_certificates(content[content.index(b"-----BEGIN CERT") :])
        stored = pkcs12.serialize_key_and_certificates(
            name.encode(),
            key,
            certificates[0],
            certificates[1:],
            BestAvailableEncryption(PASSWORD.encode()),
        )
        path = self.directory / f"{name}.p12"
        path.write_bytes(stored)
        return path

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """A context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context
