"""Private keys and certificates from PEM and PKCS#12, as PEM that OpenSSL reads."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from millrace.config import ConfigError

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_MARK = b"-----BEGIN "
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class Pem(NamedTuple):
    """Blocks of PEM; a private key may still be encrypted with `password`."""

    content: bytes
    password: str | None = None


def read_store(path: str, password: str | None, key_password: str | None, option: str) -> Pem:
    """Read a keystore or truststore; the content decides its format. Raises ConfigError."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {path}: {error.strerror}") from None
    if content.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{option}: {path} is a JKS store; convert it with"
            " `keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype pkcs12`"
        )
    if _PEM_MARK in content:
        return Pem(_blocks(content), key_password or password)
    return _from_pkcs12(content, password, f"{option}: {path}")


def from_text(text: str) -> bytes:
    """PEM of a property, whose lines may have been joined by spaces or escaped line ends."""
    content = text.replace("\\n", "\n").encode()
    blocks = []
    for block in _PEM_BLOCK.finditer(content):
        kind = block[1]
        begin, end = b"-----BEGIN " + kind + b"-----", b"-----END " + kind + b"-----"
        body = block[0].removeprefix(begin).removesuffix(end)
        # Headers of an encrypted key need their own lines; joined ones cannot be told apart.
        lines = body if b":" in body else b"\n" + b"\n".join(body.split()) + b"\n"
        blocks.append(begin + lines + end)
    return b"\n".join(blocks) + b"\n" if blocks else content


def _blocks(content: bytes) -> bytes:
    """The PEM blocks of a file, without the text that tools print around them."""
    return b"\n".join(block[0] for block in _PEM_BLOCK.finditer(content)) + b"\n"


def _from_pkcs12(content: bytes, password: str | None, where: str) -> Pem:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise ConfigError(
            f"{where}: PKCS#12 needs another package; run `pip install 'millrace[security]'`"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError:
        raise ConfigError(f"{where} is neither PEM nor PKCS#12, or its password is wrong") from None
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificates = ([store.cert] if store.cert else []) + list(store.additional_certs)
    parts += [found.certificate.public_bytes(Encoding.PEM) for found in certificates]
    return Pem(b"".join(parts))


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path that OpenSSL can read secrets from. They stay in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
