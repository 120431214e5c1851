"""User names and passwords. The file has the format of `mosquitto_passwd`: `name:$7$iterations$salt$hash`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import NamedTuple, Protocol

ITERATIONS = 20_000
MAX_ITERATIONS = 10_000_000
SALT_BYTES = 12


class PasswordFileError(Exception):
    """A password file that cannot be read; the text says why."""


class Authenticator(Protocol):
    """Decides which clients may connect."""

    async def allows(self, username: str | None, password: bytes | None) -> bool: ...


class Anyone:
    """Lets every client in."""

    async def allows(self, username: str | None, password: bytes | None) -> bool:
        return True


class Hash(NamedTuple):
    """PBKDF2 with SHA-512, as mosquitto writes it."""

    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        digest = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, len(self.digest))
        return hmac.compare_digest(digest, self.digest)


_NO_USER = Hash(ITERATIONS, b"\0" * SALT_BYTES, b"\0" * 64)


class PasswordFile:
    """The users of a file, read once."""

    def __init__(self, path: Path) -> None:
        self._hashes = read_passwords(path)

    async def allows(self, username: str | None, password: bytes | None) -> bool:
        if username is None or password is None:
            return False
        # A user that does not exist takes as long as a wrong password.
        known = self._hashes.get(username)
        # Hashing takes milliseconds, which other clients need not wait for.
        is_right = await asyncio.to_thread((known or _NO_USER).matches, password)
        return is_right and known is not None


def read_passwords(path: Path) -> dict[str, Hash]:
    """The users of a file. Raises PasswordFileError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PasswordFileError(f"cannot read {path}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, hashed = line.strip().partition(":")
        try:
            found[name] = _parsed(hashed)
        except (ValueError, binascii.Error) as error:
            raise PasswordFileError(
                f"{path}, line {number}: write name:$7$..., as `millrace mqtt-password` does"
            ) from error
    return found


def _parsed(hashed: str) -> Hash:
    empty, kind, iterations, salt, digest = hashed.split("$")
    if empty or kind != "7" or not 0 < int(iterations) <= MAX_ITERATIONS:
        raise ValueError(hashed)
    parsed = Hash(
        int(iterations), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    )
    if len(parsed.digest) != 64:
        raise ValueError(hashed)
    return parsed


def hash_password(password: str) -> str:
    """A password as the file has it."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def set_password(path: Path, name: str, password: str) -> None:
    """Add a user to a file, or change the password. Raises PasswordFileError."""
    if not name or any(character in name for character in ":\n\r#"):
        raise PasswordFileError(
            f"{name!r} cannot be a user name: it is empty or contains a colon, # or a line end"
        )
    lines = []
    if path.exists():
        read_passwords(path)
        lines = [
            line for line in path.read_text(encoding="utf-8").splitlines() if line.partition(":")[0] != name
        ]
    lines.append(f"{name}:{hash_password(password)}")
    replacement = path.with_name(f"{path.name}.new")
    replacement.touch(mode=0o600)
    replacement.write_text("\n".join(lines) + "\n", encoding="utf-8")
    replacement.replace(path)
