"""`millrace zookeeper-shell`: one command to ZooKeeper, as Kafka's tool of that name takes it."""

from __future__ import annotations

from typing import Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand

CONNECT_SECONDS = 10.0
COMMANDS = ("ls", "get", "stat", "create", "set", "delete", "deleteall")


@click.command("zookeeper-shell", cls=KafkaCommand)
@click.argument("host", metavar="HOST:PORT[/CHROOT]")
@click.argument("name", metavar="COMMAND", type=click.Choice(COMMANDS))
@click.argument("path")
@click.argument("data", required=False)
def command(*, host: str, name: str, path: str, data: str | None) -> None:
    """Run one command: ls, get, stat, create, set, delete or deleteall, on a path."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(host if ":" in host else f"{host}:2181", timeout=CONNECT_SECONDS)
    try:
        client.start(CONNECT_SECONDS)
    except KazooTimeoutError:
        client.stop()
        raise CommandError(f"no ZooKeeper at {host}; start one with `millrace zookeeper`") from None
    try:
        click.echo(_run(client, name, path, (data or "").encode()))
    except NoNodeError:
        raise CommandError(f"there is no node {path}") from None
    except (KazooException, ValueError) as error:
        raise CommandError(f"{name} {path}: {type(error).__name__} {error}") from error
    finally:
        client.stop()
        client.close()


def _run(client: Any, name: str, path: str, data: bytes) -> str:
    if name == "ls":
        return f"[{', '.join(sorted(client.get_children(path)))}]"
    if name == "get":
        return str(client.get(path)[0].decode(errors="replace"))
    if name == "stat":
        stat = client.get(path)[1]
        return "\n".join(f"{field} = {value}" for field, value in stat._asdict().items())
    if name == "create":
        return f"Created {client.create(path, data)}"
    if name == "set":
        client.set(path, data)
        return f"Set {path}"
    client.delete(path, recursive=name == "deleteall")
    return f"Deleted {path}"
