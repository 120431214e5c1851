"""Runs a broker in the foreground, and says when it is ready."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.broker import Broker
    from millrace.config import BrokerConfig


def run(config: BrokerConfig) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    from millrace.broker import serve

    serve(config, on_ready=_print_banner)
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
    click.echo("  Ctrl-C stops it", nl=True)
