"""`millrace view`: serves the result of a batch, merged with what a stream adds to it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.pipelines.views.served_view import ServedView

DEFAULT_PORT = 8089
POLL_SECONDS = 0.2

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command("view", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.argument("job", metavar="JOB")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=int, help="HTTP port to serve on.")
@click.option("--every", metavar="DURATION", help="Run a new batch this often (30m, 6h, 1d).")
@click.option(
    "--new-batch", "--anew", "new_batch", is_flag=True, help="Start with a new batch, as after a code change."
)
@click.option("--master", metavar="URL", help="Spark master.  [default: $MILLRACE_MASTER or this machine]")
@click.option(
    "--checkpoints",
    metavar="DIR",
    help="Directory of checkpoints.  [default: $MILLRACE_CHECKPOINTS or millrace-checkpoints]",
)
@click.option("--conf", "settings", multiple=True, metavar="K=V", help="A Spark setting.")
def command(
    *,
    target: Target,
    job: str,
    host: str,
    port: int,
    every: str | None,
    new_batch: bool,
    master: str | None,
    checkpoints: str | None,
    settings: tuple[str, ...],
) -> None:
    """Serve a view: a batch over the log so far, merged by key with the stream that continues from there.

    JOB is a file that declares a View (job.py, or job.py:name). GET / returns all rows as JSON, GET /KEY one
    row, POST /refresh runs a new batch. The rows are also in a compacted topic with the view's name.
    """
    target.refuse_security("pipelines")
    seconds = _seconds(every)
    from rich.console import Console

    from millrace.pipelines.run import preflight
    from millrace.pipelines.views.view import load_views

    views = load_views(job)
    if len(views) > 1:
        names = ", ".join(view.name for view in views)
        raise CommandError(f"{job} has the views {names}; choose one: {job}:{views[0].name}")
    # Checked before Spark starts, which takes seconds.
    preflight.check([views[0].pipeline], target.bootstrap)
    from millrace.pipelines.console.foreground import interrupts
    from millrace.pipelines.run import checkpoint
    from millrace.pipelines.spark.session import session
    from millrace.pipelines.views.http_server import http_server

    spark = session(views[0].name, master=master, settings=parse_pairs(settings, "--conf"))
    console = Console(stderr=True)
    directory = checkpoint.directory(checkpoints)
    try:
        with (
            views[0].serve(
                spark, target.bootstrap, checkpoints=directory, new_batch=new_batch, console=console
            ) as served,
            http_server(served, host, port) as server,
            interrupts() as received,
        ):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            click.echo(f"{views[0].name} is served at http://{host}:{server.server_address[1]}/")
            _follow(served, seconds, lambda: received.count > 0)
            server.shutdown()
    finally:
        spark.stop()


def _follow(served: ServedView, every: float | None, is_interrupted: Callable[[], bool]) -> None:
    """Wait for Ctrl-C or an error, and run a batch at each interval."""
    waited = 0.0
    while not is_interrupted():
        if served.wait(POLL_SECONDS):
            return
        waited += POLL_SECONDS
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
