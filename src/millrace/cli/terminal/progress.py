"""A progress bar on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click


class Progress(NamedTuple):
    """Functions that move the bar and print lines above it."""

    update: Callable[[int], object]
    echo: Callable[[str], object]


@contextmanager
def progress(what: str, total: int) -> Iterator[Progress]:
    """Show the progress towards a total for the length of a block."""
    if not sys.stderr.isatty():
        yield Progress(lambda done: None, click.echo)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, highlight=False)
    with Bar(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(what, total=total)
        # Lines must go through the bar's console if both write to the same terminal.
        echo = console.print if sys.stdout.isatty() else click.echo
        yield Progress(lambda done: bar.update(task, completed=done), echo)
