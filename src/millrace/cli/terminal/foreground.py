"""Runs a broker in the foreground, and says when it is ready."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from millrace.broker import Broker
    from millrace.config import BrokerConfig


def run(config: BrokerConfig) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    from millrace.broker import serve

    if not serve(config, on_ready=_print_banner):
        raise CommandError(
            "the broker has stopped, but could not write everything (see the errors above);"
            " the next start checks the logs"
        )
    click.echo("stopped")


def log_to_stderr() -> None:
    """Send the broker's log to standard error."""
    level = os.environ.get("MILLRACE_LOG", "WARNING").upper()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level)


def _print_banner(broker: Broker) -> None:
    addresses = ",".join(f"{host}:{port}" for host, port in broker.listeners)
    data = ",".join(str(path) for path in broker.data_dirs)
    name = click.style("millrace", bold=True, fg="cyan")
    rows = {
        "address": click.style(addresses, bold=True),
        "data": data,
        "topics": str(broker.topics),
        "pid": str(os.getpid()),
    }
    click.echo(f"{name} is ready in {broker.startup_ms} ms")
    for label, text in rows.items():
        click.echo(f"  {label:<8} {text}")
    if broker.exposed:
        warning = (
            f"anyone who can reach {','.join(broker.exposed)} may read, write and delete everything:"
            " there is no authentication yet"
        )
        click.echo(f"  {'access':<8} {click.style(warning, fg='yellow')}")
    click.echo("  Ctrl-C stops it", nl=True)
