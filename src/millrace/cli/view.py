"""`millrace view`: serve what a batch has computed and a stream adds to it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.pipelines.serving import Served

DEFAULT_PORT = 8089
LOOK_SECONDS = 0.2

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command("view", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("job", metavar="JOB")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=int, help="Port to serve on, by HTTP.")
@click.option("--every", metavar="DURATION", help="Run a new batch this often (30m, 6h, 1d).")
@click.option("--anew", is_flag=True, help="Begin with a new batch, as after a change of the code.")
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Where runs keep how far they are.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="Any Spark setting.")
def command(
    *,
    target: Target,
    job: str,
    host: str,
    port: int,
    every: str | None,
    anew: bool,
    master: str | None,
    checkpoints: str | None,
    settings: tuple[str, ...],
) -> None:
    """Serve a view: a batch over the log so far, and the stream that goes on from there, merged by key.

    JOB is a file that declares a View (job.py, or job.py:name). GET / is every row and GET /KEY one of them,
    as JSON; POST /refresh runs a new batch. The rows are in a compacted topic of the view's name as well.
    """
    seconds = _seconds(every)
    from rich.console import Console

    from millrace.pipelines import checkpoint
    from millrace.pipelines.foreground import interrupts
    from millrace.pipelines.spark_session import session
    from millrace.pipelines.view_http import http_server
    from millrace.pipelines.views import load_views

    views = load_views(job)
    if len(views) > 1:
        names = ", ".join(view.name for view in views)
        raise CommandError(f"{job} has the views {names}; choose one: {job}:{views[0].name}")
    spark = session(views[0].name, master=master, settings=parse_pairs(settings, "--conf"))
    console = Console(stderr=True)
    directory = checkpoint.directory(checkpoints)
    try:
        with (
            views[0].serve(
                spark, target.bootstrap, checkpoints=directory, anew=anew, console=console
            ) as served,
            http_server(served, host, port) as server,
            interrupts() as asked,
        ):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            click.echo(f"{views[0].name} is served at http://{host}:{server.server_address[1]}/")
            _follow(served, seconds, lambda: asked.count > 0)
            server.shutdown()
    finally:
        spark.stop()


def _follow(served: Served, every: float | None, is_asked_to_stop: Callable[[], bool]) -> None:
    """Until Ctrl-C or an error; with a batch now and then."""
    waited = 0.0
    while not is_asked_to_stop():
        if served.wait(LOOK_SECONDS):
            return
        waited += LOOK_SECONDS
        if every is not None and waited >= every:
            waited = 0.0
            click.echo(str(served.refresh()), err=True)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise CommandError(f"--every {text}: write a number and s, m, h or d, such as 6h")
    return float(found[1]) * _UNITS[found[2]]
