"""The platform: a process that starts the broker and the services, and starts them again when they fail."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from millrace.cli.terminal.errors import CommandError, explain
from millrace.cli.terminal.foreground import BrokerReport, incomplete_stop, print_banner, print_rows
from millrace.services.children import Child, Children
from millrace.services.table import Service, Settings

if TYPE_CHECKING:
    from millrace.broker import Broker
    from millrace.config import BrokerConfig


def run_platform(
    config: BrokerConfig | None, services: Sequence[Service], settings: Settings, more: Mapping[str, str]
) -> None:
    """Run everything until Ctrl-C or SIGTERM. Without a config, the services use another broker."""
    broker: Child | None = None
    with Children() as children:
        listening, rows = _listen(services, settings.host)
        rows |= more
        if config is not None:
            broker, report = _start_broker(children, config)
            settings = dataclasses.replace(settings, bootstrap=report.addresses[0])
        _start_services(children, services, listening, settings)
        if config is not None:
            print_banner(report, rows)
        else:
            _print_services(settings, rows)
        children.run()
    if broker is not None and broker.exit_code:
        raise incomplete_stop()
    click.echo("stopped")


def _print_services(settings: Settings, rows: dict[str, str]) -> None:
    click.echo(f"{click.style('millrace', bold=True, fg='cyan')} services for {settings.bootstrap}")
    print_rows({"pid": str(os.getpid()), **rows})
    click.echo("  Ctrl-C stops them")


# The broker


def _start_broker(children: Children, config: BrokerConfig) -> tuple[Child, BrokerReport]:
    """Start the broker and wait until it is ready; raises CommandError if it cannot start."""
    receiving, sending = os.pipe()
    run = _BrokerRun(config, receiving, sending)
    child = children.start("broker", run)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        content = pipe.readline()
    start = msgspec.json.decode(content, type=_Start) if content else _Start()
    if start.report is None:
        raise CommandError(start.error)
    # Started again, it must be at the same address, even if its port was any free one.
    run.keep_ports(start.ports)
    return child, start.report


class _Start(msgspec.Struct):
    """The first words of the broker's process: it is ready, or why it is not."""

    report: BrokerReport | None = None
    ports: list[int] = []
    error: str = "the broker ended while it started"


class _BrokerRun:
    """The broker's process: reports through a pipe, the first time, that it is ready or why it is not."""

    def __init__(self, config: BrokerConfig, receiving: int, sending: int) -> None:
        self._config = config
        self._pipe: tuple[int, int] | None = (receiving, sending)

    def keep_ports(self, ports: Sequence[int]) -> None:
        self._config.listeners = tuple(
            dataclasses.replace(listener, port=port)
            for listener, port in zip(self._config.listeners, ports, strict=True)
        )
        self._pipe = None

    def __call__(self) -> int:
        from millrace.broker import StartupError, serve

        if self._pipe is not None:
            os.close(self._pipe[0])
        try:
            return 0 if serve(self._config, on_ready=self._ready) else 1
        except StartupError as error:
            if self._pipe is None:
                raise
            self._report(_Start(error=explain(error)))
            return 1

    def _ready(self, broker: Broker) -> None:
        self._report(_Start(BrokerReport.of(broker), broker.ports))

    def _report(self, content: _Start) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe[1], msgspec.json.encode(content) + b"\n")
            os.close(self._pipe[1])


# The services


def _listen(services: Sequence[Service], host: str) -> tuple[dict[str, socket.socket], dict[str, str]]:
    """Take the ports of the services, and describe them; one whose port is taken is left out."""
    from millrace.services.http import ServiceError, listen, url_of

    sockets: dict[str, socket.socket] = {}
    rows: dict[str, str] = {}
    for service in services:
        if service.port is not None:
            try:
                sockets[service.name] = listen(host, service.port, name=f"the {service.title}")
            except ServiceError as error:
                remedy = f"--service-port {service.name}=PORT takes another"
                rows[service.name] = click.style(f"left out: {error}; {remedy}", fg="yellow")
            else:
                rows[service.name] = f"{url_of(sockets[service.name])}  {service.title}"
    return sockets, rows


def _start_services(
    children: Children, services: Sequence[Service], sockets: dict[str, socket.socket], settings: Settings
) -> None:
    ready = [service for service in services if service.port is None or service.name in sockets]
    for process, members in itertools.groupby(
        sorted(ready, key=lambda service: service.process), key=lambda service: service.process
    ):
        children.start(process, _ServicesRun(tuple(members), sockets, settings))


class _ServicesRun:
    """A process of services."""

    def __init__(
        self, services: Sequence[Service], sockets: dict[str, socket.socket], settings: Settings
    ) -> None:
        self._services = services
        self._sockets = sockets
        self._settings = settings

    def __call__(self) -> None:
        from millrace.services.process import run_services

        mine = {service.name for service in self._services}
        for name, listening in self._sockets.items():
            if name not in mine:
                listening.close()
        run_services(self._services, self._sockets, self._settings)


def secrets_dir(config: BrokerConfig | None, data_dir: Path) -> Path:
    """The directory of the platform's secrets: the first data directory of its broker."""
    return Path(config.log_dirs[0]) if config is not None else data_dir.expanduser().absolute()
