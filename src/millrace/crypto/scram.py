"""SCRAM (RFC 5802): credentials that do not hold the password, and both sides of the exchange."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import pbkdf2_hmac
from typing import NamedTuple

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
SALT_BYTES = 24
NONCE_BYTES = 24

_NO_CHANNEL_BINDING = "n,,"


class ScramMechanism(IntEnum):
    """The mechanisms, numbered as the protocol numbers them."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """The name as SASL and configs write it."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hash(self, content: bytes) -> bytes:
        from hashlib import new

        return new(self.hash_name, content).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """The slow part, by which guessing passwords is made slow too."""
        return pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


BY_NAME = {mechanism.text: mechanism for mechanism in ScramMechanism}


class ScramFailure(Exception):
    """The exchange cannot succeed: a wrong password, or a message out of order."""


class ScramCredential(NamedTuple):
    """Proof that a user knows a password, without the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return cls(salt, mechanism.hash(client_key), server_key, iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        salt = os.urandom(SALT_BYTES)
        return cls.of(mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Read the text form that Kafka keeps. Raises ValueError."""
        fields = dict(part.split("=", 1) for part in text.split(","))
        try:
            return cls(
                base64.b64decode(fields["salt"]),
                base64.b64decode(fields["stored_key"]),
                base64.b64decode(fields["server_key"]),
                int(fields["iterations"]),
            )
        except KeyError as error:
            raise ValueError(f"a SCRAM credential without {error}") from None

    @property
    def text(self) -> str:
        """The text form that Kafka keeps."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )


@dataclass(slots=True, repr=False)
class ScramServer:
    """The server's side of one exchange: `first`, look the credential up, `challenge`, `final`."""

    mechanism: ScramMechanism
    nonce: str = field(default_factory=lambda: _base64(os.urandom(NONCE_BYTES)))
    user: str = ""
    _first: str = ""
    _challenge: str = ""
    _credential: ScramCredential | None = None

    def first(self, message: bytes) -> str:
        """Read the client's first message; returns the name of the user."""
        text = _text(message)
        flag, authzid, bare = _split(text, 3)
        if flag not in ("n", "y"):
            raise ScramFailure("channel binding is not offered")
        fields = _fields(bare)
        self.user = _unescape(fields.get("n", ""))
        nonce = fields.get("r", "")
        if not self.user or not nonce or "m" in fields:
            raise ScramFailure("the first message has no user or no nonce")
        if authzid and _unescape(authzid.removeprefix("a=")) != self.user:
            raise ScramFailure("a user cannot act for another one")
        self.nonce = nonce + self.nonce
        self._first = bare
        return self.user

    def challenge(self, credential: ScramCredential) -> bytes:
        self._credential = credential
        self._challenge = f"r={self.nonce},s={_base64(credential.salt)},i={credential.iterations}"
        return self._challenge.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof; returns the server's own. Raises ScramFailure."""
        assert self._credential is not None
        text = _text(message)
        without_proof, comma, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if not comma or fields.get("r") != self.nonce:
            raise ScramFailure("the final message has no proof, or another nonce")
        if _decode(fields.get("c", "")) not in (b"n,,", b"y,,", b"n,a=" + self.user.encode() + b","):
            raise ScramFailure("the final message has another header than the first")
        signed = f"{self._first},{self._challenge},{without_proof}".encode()
        mechanism, credential = self.mechanism, self._credential
        signature = mechanism.hmac(credential.stored_key, signed)
        proven = _decode(proof)
        if len(proven) != len(signature):
            raise ScramFailure("the proof is wrong")
        if not hmac.compare_digest(mechanism.hash(_xor(proven, signature)), credential.stored_key):
            raise ScramFailure("the proof is wrong")
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


@dataclass(slots=True, repr=False)
class ScramClient:
    """The client's side of one exchange."""

    mechanism: ScramMechanism
    user: str
    password: str
    nonce: str = field(default_factory=lambda: _base64(os.urandom(NONCE_BYTES)))
    _server_signature: bytes = b""

    @property
    def _bare(self) -> str:
        return f"n={self.user.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof for a server's challenge."""
        text = _text(challenge)
        fields = _fields(text)
        nonce, salt, iterations = fields.get("r", ""), _decode(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self.nonce) or not salt or not iterations.isdecimal():
            raise ScramFailure("the broker's challenge is not one of SCRAM")
        if int(iterations) < MIN_ITERATIONS:
            # A false broker could otherwise learn the password by guessing.
            raise ScramFailure(
                f"the broker asks for {iterations} iterations; at least {MIN_ITERATIONS} are safe"
            )
        mechanism = self.mechanism
        salted = mechanism.salted_password(self.password, salt, int(iterations))
        without_proof = f"c={_base64(_NO_CHANNEL_BINDING.encode())},r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={_base64(_xor(client_key, signature))}".encode()

    def check(self, message: bytes) -> None:
        """Check that the server knows the credential too. Raises ScramFailure."""
        if not hmac.compare_digest(_decode(_fields(_text(message)).get("v", "")), self._server_signature):
            raise ScramFailure("the broker does not know the user's credential; is it the right broker?")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailure("a value is not base64") from None


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise ScramFailure("a message is not UTF-8") from None


def _split(text: str, parts: int) -> list[str]:
    found = text.split(",", parts - 1)
    if len(found) != parts:
        raise ScramFailure("a message is too short")
    return found


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
