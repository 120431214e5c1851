"""The command line of the benchmarks."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import click
from rich.console import Console

from benchmarks.brokers import BROKERS, MILLRACE, StartBroker, earlier
from benchmarks.comparison import Comparison
from benchmarks.figures import Figures
from benchmarks.loads.groups.settings import BROKER_PROPERTIES
from benchmarks.loads.groups.workloads import GROUP_WORKLOADS
from benchmarks.report import page, terminal
from benchmarks.runs import idle_connections, log_size, offset_loading
from benchmarks.workloads import WORKLOADS, Suite

SUITES = {
    page.COMPARISON: Suite(WORKLOADS, starts_and_memory=True),
    page.GROUPS: Suite(GROUP_WORKLOADS, BROKER_PROPERTIES),
}
COMPARED = [name for kind, suite in SUITES.items() for name in (kind, *suite.names)]
ALONE = [page.LOG_SIZE, page.IDLE_CONNECTIONS, page.LOADING]
ON_SPARK = [page.PIPELINES, page.SINKS, page.SCALING, page.RIVALS]

console = Console()
if not console.is_terminal:
    console = Console(width=120)


@click.command(context_settings={"show_default": True})
@click.argument("names", nargs=-1, type=click.Choice([*COMPARED, *ALONE, *ON_SPARK]))
@click.option("--rounds", default=5, help="Counted rounds of every load; figures are their medians.")
@click.option(
    "--quick", is_flag=True, help="A tenth of the work: a check that everything runs, not a measurement."
)
@click.option(
    "--broker", "brokers", multiple=True, type=click.Choice(list(BROKERS)), help="Run only this broker."
)
@click.option("--baseline", metavar="REVISION", help="Compare with millrace as of this commit instead.")
@click.option("--gb", default=20.0, help="Size of the big log (log-size), if the disk has enough space.")
@click.option("--connections", default=10_000, help="Number of idle connections (idle-connections).")
@click.option("--commits", default=1_000_000, help="Number of offset commits to load (offset-loading).")
@click.option("--keep/--no-keep", default=None, help="Write docs/benchmarks.md. [default: whole runs]")
def main(
    *,
    names: tuple[str, ...],
    rounds: int,
    quick: bool,
    brokers: tuple[str, ...],
    baseline: str | None,
    gb: float,
    connections: int,
    commits: int,
    keep: bool | None,
) -> None:
    """Compare millrace with Apache Kafka on this machine; without NAMES, run everything that has a bar."""
    if baseline and (brokers or keep):
        raise click.UsageError("--baseline compares millrace with itself, and its figures are not kept")
    chosen = list(brokers or BROKERS)
    whole = not quick and not brokers and not baseline
    missed = False
    for kind, suite in SUITES.items():
        all_of_it = not names or kind in names
        compared = suite.names if all_of_it else [name for name in suite.names if name in names]
        if compared:
            kept = keep if keep is not None else whole and all_of_it
            with _starts(chosen, baseline) as starts:
                missed |= _compare(kind, compared, starts, rounds=rounds, quick=quick, keep=kept)
    kept = keep if keep is not None else whole
    if page.LOG_SIZE in names:
        _columns(page.LOG_SIZE, lambda announce: log_size.run(gb, announce), keep=kept)
    if page.IDLE_CONNECTIONS in names:
        _columns(
            page.IDLE_CONNECTIONS,
            lambda announce: idle_connections.run(connections, chosen, announce, quick=quick),
            keep=kept,
        )
    if page.LOADING in names:
        counted = commits // 10 if quick else commits
        _columns(page.LOADING, lambda announce: offset_loading.run(counted, chosen, announce), keep=kept)
    if page.PIPELINES in names:
        from benchmarks.pipelines import comparison

        with _progress() as announce:
            compared_figures = comparison.run(announce, rounds=rounds, quick=quick)
        missed |= _show(page.PIPELINES, compared_figures, keep=kept)
    if page.SINKS in names:
        from benchmarks.pipelines import sink

        _columns(page.SINKS, sink.run, keep=kept)
    if page.SCALING in names:
        from benchmarks.pipelines import scaling

        _columns(page.SCALING, lambda announce: scaling.run(announce, quick=quick), keep=kept)
    if page.RIVALS in names:
        from benchmarks.pipelines import rivals

        _columns(page.RIVALS, lambda announce: rivals.run(announce, rounds=rounds, quick=quick), keep=kept)
    sys.exit(1 if missed else 0)


@contextmanager
def _starts(brokers: list[str], baseline: str | None) -> Iterator[Mapping[str, StartBroker]]:
    """The brokers to compare: by name, or millrace and an earlier revision of it."""
    with earlier(baseline) if baseline else nullcontext() as start:
        if start is None:
            yield {name: BROKERS[name] for name in brokers}
        else:
            yield {MILLRACE: BROKERS[MILLRACE], f"{MILLRACE} at {baseline}": start}


def _compare(
    kind: str, names: list[str], brokers: Mapping[str, StartBroker], *, rounds: int, quick: bool, keep: bool
) -> bool:
    """Run, print and optionally store a comparison; returns whether a bar was missed."""
    with _progress() as announce:
        comparison = Comparison(SUITES[kind], names, brokers, rounds=rounds, quick=quick, announce=announce)
        figures = comparison.run()
    return _show(kind, figures, keep=keep)


def _show(kind: str, figures: Figures, *, keep: bool) -> bool:
    """Print and optionally store figures; returns whether a bar was missed."""
    terminal.show(console, figures)
    if keep:
        page.keep(kind, _command(), figures.raw())
    return any(row.verdict == "FAIL" for row in figures.rows())


def _columns(
    kind: str, run: Callable[[Callable[[str], None]], dict[str, dict[str, float]]], *, keep: bool
) -> None:
    with _progress() as announce:
        figures = run(announce)
    terminal.show_columns(console, figures)
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
