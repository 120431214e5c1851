"""The command line of the benchmarks."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from benchmarks import idle_connections, log_size, page, report
from benchmarks.brokers import BROKERS
from benchmarks.comparison import Comparison
from benchmarks.workloads import READY, WORKLOADS

COMPARED = [READY, *(workload.name for workload in WORKLOADS)]
ALONE = [page.LOG_SIZE, page.IDLE_CONNECTIONS]

console = Console()
if not console.is_terminal:
    console = Console(width=120)


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, type=click.Choice([*COMPARED, *ALONE]))
@click.option("--rounds", default=5, help="Counted rounds of every load; figures are their medians.")
@click.option("--quick", is_flag=True, help="A tenth of the work: a check that all runs, not a measurement.")
@click.option("--broker", "brokers", multiple=True, type=click.Choice(list(BROKERS)), help="Only this one.")
@click.option("--gb", default=20.0, help="Size of the big log (log-size), if the disk has the room.")
@click.option("--connections", default=10_000, help="How many idle connections (idle-connections).")
@click.option("--keep/--no-keep", default=None, help="Write docs/benchmarks.md. [default: whole runs]")
def main(
    *,
    names: tuple[str, ...],
    rounds: int,
    quick: bool,
    brokers: tuple[str, ...],
    gb: float,
    connections: int,
    keep: bool | None,
) -> None:
    """Compare millrace with Apache Kafka on this machine; without NAMES, in everything that has a bar."""
    compared = [name for name in names if name in COMPARED] if names else COMPARED
    chosen = list(brokers or BROKERS)
    whole = not quick and not brokers
    missed = False
    if compared:
        kept = keep if keep is not None else whole and not names
        missed = _compare(compared, chosen, rounds=rounds, quick=quick, keep=kept)
    kept = keep if keep is not None else whole
    if page.LOG_SIZE in names:
        _columns(page.LOG_SIZE, lambda announce: log_size.run(gb, announce), keep=kept)
    if page.IDLE_CONNECTIONS in names:
        _columns(
            page.IDLE_CONNECTIONS,
            lambda announce: idle_connections.run(connections, chosen, announce, quick=quick),
            keep=kept,
        )
    sys.exit(1 if missed else 0)


def _compare(names: list[str], brokers: list[str], *, rounds: int, quick: bool, keep: bool) -> bool:
    """Run, print and perhaps store a comparison; returns whether a bar was missed."""
    with _progress() as announce:
        figures = Comparison(names, brokers, rounds=rounds, quick=quick, announce=announce).run()
    rows = figures.rows()
    report.show(console, rows)
    if keep:
        page.keep(page.COMPARISON, _command(), figures.raw())
    return any(row.verdict == "FAIL" for row in rows)


def _columns(
    kind: str, run: Callable[[Callable[[str], None]], dict[str, dict[str, float]]], *, keep: bool
) -> None:
    with _progress() as announce:
        figures = run(announce)
    report.show_columns(console, figures)
    if keep:
        page.keep(kind, _command(), figures)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A status line on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield status.update


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


if __name__ == "__main__":
    main()
