"""The parts of the platform that a command line asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence

from millrace.cli.terminal.errors import CommandError
from millrace.services.table import SERVICES, Service

BROKER = "broker"
# The packages of the extra `services` that every service over HTTP needs.
NEEDED = ("starlette", "uvicorn")
HOW_TO_INSTALL = "pip install 'millrace[services]'"


def chosen(only: str | None, without: str | None) -> tuple[bool, list[Service]]:
    """Whether a broker is started, and the services that are."""
    if only is not None and without is not None:
        raise CommandError("give --only or --without, not both")
    names = [BROKER, *(service.name for service in SERVICES)]
    if only is not None:
        wanted = set(_known(_split(only), names, "--only"))
    else:
        wanted = set(names) - set(_known(_split(without or ""), names, "--without"))
    return BROKER in wanted, [service for service in SERVICES if service.name in wanted]


def with_ports(services: Sequence[Service], ports: dict[str, str]) -> list[Service]:
    """The services on other ports, as `--service-port NAME=PORT` has them."""
    names = [service.name for service in SERVICES if service.port is not None]
    _known(ports, names, "--service-port")
    return [
        service._replace(port=_port(service.name, ports[service.name])) if service.name in ports else service
        for service in services
    ]


def installed(services: Sequence[Service]) -> tuple[list[Service], list[Service]]:
    """The services that can run, and those that need packages which are not installed."""
    if all(importlib.util.find_spec(package) is not None for package in NEEDED):
        return list(services), []
    ready = [service for service in services if service.port is None]
    return ready, [service for service in services if service.port is not None]


def how_to_get(services: Sequence[Service]) -> dict[str, str]:
    """The line of the banner that says how to get services which are not installed."""
    titles = ", ".join(service.title for service in services)
    return {"more": f"{HOW_TO_INSTALL} adds: {titles}"} if services else {}


def _port(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise CommandError(f"--service-port {name}={text}: a port is a number from 0 to 65535")
    return int(text)


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _known(given: Iterable[str], names: Sequence[str], option: str) -> list[str]:
    given = list(given)
    for name in given:
        if name not in names:
            raise CommandError(f"{option} {name}: there is no such part; there are {', '.join(names)}")
    if option == "--only" and not given:
        raise CommandError(f"--only needs a name; there are {', '.join(names)}")
    return given
