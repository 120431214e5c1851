"""`millrace drpc`: calls a function, lists functions, or serves DRPC."""

from __future__ import annotations

import click

from millrace.cli.terminal.options import KafkaCommand, Target, broker_options

DEFAULT_URL = "http://localhost:3774"


@click.command("drpc", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("function", required=False)
@click.argument("args", required=False, default="")
@click.option("--server", metavar="URL", default=DEFAULT_URL, show_default=True, help="The DRPC server.")
@click.option("--list", "lists", is_flag=True, help="List the functions.")
@click.option("--serve", is_flag=True, help="Run a DRPC server here, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --serve: address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=3774,
    show_default=True,
    help="With --serve. 0: a free one.",
)
@click.option(
    "--timeout", "seconds", type=float, default=600.0, show_default=True, help="Seconds that a call may take."
)
@click.option(
    "--max-waiting",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="With --serve: calls that wait.",
)
def command(
    *,
    target: Target,
    function: str | None,
    args: str,
    server: str,
    lists: bool,
    serve: bool,
    host: str,
    port: int,
    seconds: float,
    max_waiting: int,
) -> None:
    """Call FUNCTION with ARGS and print its result: `millrace drpc reach foo.com/blog/1`."""
    if serve:
        _serve(target, host, port, seconds, max_waiting)
        return
    from millrace.cli.terminal.errors import CommandError
    from millrace.drpc import Client, DrpcError

    try:
        with Client(server, timeout_seconds=seconds) as client:
            if lists:
                for name in client.functions():
                    click.echo(name)
            elif function is None:
                raise CommandError("name a function to call, or pass --list to see them")
            else:
                click.echo(client.execute(function, args))
    except (DrpcError, ValueError) as error:
        raise CommandError(str(error)) from error


def _serve(target: Target, host: str, port: int, seconds: float, max_waiting: int) -> None:
    from millrace.cli.terminal.foreground import log_to_stderr
    from millrace.drpc.server import drpc_app
    from millrace.services.http import serve

    log_to_stderr()
    app = drpc_app(
        target.bootstrap, dict(target.properties), timeout_seconds=seconds, most_waiting=max_waiting
    )
    serve(app, host, port, name="DRPC", on_ready=lambda url: click.echo(f"the DRPC server listens on {url}"))
