"""Runs a broker in the foreground, and says when it is ready."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from millrace.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from millrace.broker import Broker
    from millrace.config import BrokerConfig


class BrokerReport(NamedTuple):
    """A broker that is ready, as its banner shows it."""

    startup_ms: int
    addresses: list[str]
    data_dirs: list[str]
    topics: int
    exposed: list[str]

    @staticmethod
    def of(broker: Broker) -> BrokerReport:
        return BrokerReport(
            broker.startup_ms,
            [f"{host}:{port}" for host, port in broker.listeners],
            [str(path) for path in broker.data_dirs],
            broker.topics,
            broker.exposed,
        )


def run(config: BrokerConfig, rows: Mapping[str, str] | None = None, *, joins: bool = False) -> None:
    """Serve until Ctrl-C or SIGTERM, as a member of a cluster if `joins`; `rows` are added to the banner."""
    from millrace.broker import serve

    def ready(broker: Broker) -> None:
        print_banner(BrokerReport.of(broker), rows or {})

    if not serve(config, on_ready=ready, joins=joins):
        raise incomplete_stop()
    click.echo("stopped")


def incomplete_stop() -> CommandError:
    return CommandError(
        "the broker has stopped, but could not write everything (see the errors above);"
        " the next start checks the logs"
    )


def log_to_stderr() -> None:
    """Send the log of this process to standard error."""
    level = os.environ.get("MILLRACE_LOG", "WARNING").upper()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level)


def print_rows(rows: Mapping[str, str]) -> None:
    """Print labels and texts in two columns."""
    width = max(8, *map(len, rows))
    for label, text in rows.items():
        click.echo(f"  {label:<{width}} {text}")


def print_banner(broker: BrokerReport, rows: Mapping[str, str]) -> None:
    """Say that the broker is ready, and where; `rows` are further lines."""
    name = click.style("millrace", bold=True, fg="cyan")
    content = {
        "address": click.style(",".join(broker.addresses), bold=True),
        "data": ",".join(broker.data_dirs),
        "topics": str(broker.topics),
        "pid": str(os.getpid()),
        **rows,
    }
    if broker.exposed:
        warning = (
            f"anyone who can reach {','.join(broker.exposed)} may read, write and delete everything:"
            " it asks for no authentication; `millrace up --secure` does"
        )
        content["access"] = click.style(warning, fg="yellow")
    click.echo(f"{name} is ready in {broker.startup_ms} ms")
    print_rows(content)
    click.echo("  Ctrl-C stops it", nl=True)
