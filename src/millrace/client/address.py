"""Addresses of brokers, as `bootstrap.servers` lists them."""

from typing import NamedTuple

DEFAULT_PORT = 9092


class InvalidAddress(ValueError):
    """A text is not `host:port`."""


class Address(NamedTuple):
    """A broker's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str) -> list[Address]:
    """Parse `host:port,host:port`; the port defaults to 9092. Raises InvalidAddress."""
    return [_parse(text.strip()) for text in bootstrap.split(",")]


def _parse(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host:
        host, port = port, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidAddress(f"{text!r} is not an address; write host:port")
    return Address(host.strip("[]"), int(port))
