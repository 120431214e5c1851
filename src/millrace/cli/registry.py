"""`millrace registry`: a schema registry over a log."""

from __future__ import annotations

import click

from millrace.cli.terminal.options import KafkaCommand, Target, broker_options

DEFAULT_PORT = 8081


@click.command("registry", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one."
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="Name under which other registries reach this one.  [default: that of --host]",
)
@click.option("--topic", default="_schemas", show_default=True, help="Topic that holds the schemas.")
@click.option(
    "--group", default="schema-registry", show_default=True, help="Group in which registries elect a leader."
)
@click.option("--follow", is_flag=True, help="Serve reads and forward writes, but never lead.")
def command(
    *, target: Target, host: str, port: int, advertised_host: str | None, topic: str, group: str, follow: bool
) -> None:
    """Serve Confluent's schema registry API over the schemas in a topic.

    Several registries over one topic elect a leader; every one of them serves reads, and forwards writes.
    """
    from millrace.cli.terminal.client_properties import translate
    from millrace.cli.terminal.foreground import log_to_stderr
    from millrace.registry.app import registry_app
    from millrace.registry.leadership import Identity
    from millrace.registry.registry import Options
    from millrace.services.http import listen, serve_socket

    log_to_stderr()
    listening = listen(host, port, name="the registry")
    number = listening.getsockname()[1]
    identity = Identity(advertised_host or _reachable(host), number, eligible=not follow)
    options = Options(target.bootstrap, identity, topic, group, translate(target.properties))
    serve_socket(
        registry_app(options), listening, on_ready=lambda url: click.echo(f"the registry listens on {url}")
    )


def _reachable(host: str) -> str:
    """The name of this machine if it listens on all addresses."""
    import socket

    return socket.gethostname() if host in ("", "0.0.0.0", "::") else host
