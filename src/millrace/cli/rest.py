"""`millrace rest`: a REST proxy in front of a log."""

from __future__ import annotations

import click

from millrace.cli.terminal.options import KafkaCommand, Target, broker_options

DEFAULT_PORT = 8082


@click.command("rest", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one."
)
@click.option("--registry", metavar="URL", help="Schema registry, for records with schemas.")
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=1),
    default=300,
    show_default=True,
    help="Close consumer instances that are not used for so long.",
)
def command(*, target: Target, host: str, port: int, registry: str | None, idle_seconds: float) -> None:
    """Serve Confluent's REST API, versions 2 and 3: produce, consume and administer over HTTP."""
    from millrace.cli.terminal.client_properties import translate
    from millrace.cli.terminal.foreground import log_to_stderr
    from millrace.rest.app import Options, rest_app
    from millrace.services.http import serve

    log_to_stderr()
    options = Options(target.bootstrap, registry, translate(target.properties), idle_seconds)
    serve(
        rest_app(options),
        host,
        port,
        name="the REST proxy",
        on_ready=lambda url: click.echo(f"the REST proxy listens on {url}"),
    )
