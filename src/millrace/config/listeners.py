"""The addresses that the broker binds, and those that it advertises to clients."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from .options import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that the broker binds, and the address it advertises to clients of this listener."""

    name: str
    host: str
    """Empty to bind every interface, IPv4 and IPv6."""
    port: int
    protocol: str
    advertised_host: str
    advertised_port: int

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One `NAME://host:port` of a listeners option."""

    name: str
    host: str
    port: int


def parse_endpoint(option: str, text: str) -> Endpoint:
    """Read `NAME://host:port`; the host may be empty, or an IPv6 address in brackets."""
    name, scheme, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not name or not scheme or not colon:
        raise ConfigError(f"{option} takes entries such as PLAINTEXT://localhost:9092, got {text!r}")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{option}: the port of {text!r} must be a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{option}: write the IPv6 address of {text!r} in brackets")
    return Endpoint(name.upper(), host, int(port))


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read `NAME:PROTOCOL,NAME:PROTOCOL`."""
    protocols = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.partition(":")
        if not colon:
            raise ConfigError(f"listener.security.protocol.map takes NAME:PROTOCOL pairs, got {entry!r}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def resolve_listeners(
    endpoints: list[Endpoint], advertised: Mapping[str, Endpoint], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Join bound and advertised addresses, and check that all of them can be served."""
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"listeners names {name} twice; give each listener its own name")
    for name in advertised:
        if name not in names:
            raise ConfigError(f"advertised.listeners names {name}, which is not in listeners")
    if not endpoints:
        raise ConfigError("listeners names no address that clients could connect to")
    return tuple(_resolve(endpoint, advertised.get(endpoint.name), protocols) for endpoint in endpoints)


def _resolve(endpoint: Endpoint, advertised: Endpoint | None, protocols: Mapping[str, str]) -> Listener:
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise ConfigError(
            f"listener.security.protocol.map does not say which protocol listener {endpoint.name} speaks"
        )
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"listener {endpoint.name}: {protocol!r} is not a security protocol")
    if advertised is not None and advertised.host in _WILDCARD_HOSTS[1:]:
        raise ConfigError(
            f"advertised.listeners: clients cannot connect to {advertised.host}; name a host they can reach"
        )
    reachable_host = "" if endpoint.host in _WILDCARD_HOSTS else endpoint.host
    return Listener(
        name=endpoint.name,
        host=endpoint.host,
        port=endpoint.port,
        protocol=protocol,
        advertised_host=(advertised.host if advertised else "") or reachable_host or _own_host_name(),
        advertised_port=advertised.port if advertised else endpoint.port,
    )


def _own_host_name() -> str:
    """This machine's name if it resolves, else the loopback address."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
