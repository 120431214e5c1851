"""`millrace topology errors`, `monitor` and `debug`: a look inside a topology."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand
from millrace.cli.topology.listing import print_table
from millrace.cli.topology.supervised import Supervised, supervisor_options

if TYPE_CHECKING:
    from millrace.topologies.supervisor.records import Job

SHOWN_ERRORS = 20


@click.command("errors", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
def errors(*, supervised: Supervised, name: str) -> None:
    """Print the newest errors of the topology NAME, the last one last."""
    from millrace.topologies.supervisor.figures_reader import FiguresReader

    with supervised.board() as board:
        job = board.job(name)
        status = board.status(job)
    reader = FiguresReader(supervised.target.bootstrap, supervised.target.properties)
    try:
        found = reader.catch_up().of(job.id)
    finally:
        reader.close()
    everything = sorted((error for kept in found.errors.values() for error in kept), key=lambda e: e.time_ms)
    for error in everything[-SHOWN_ERRORS:]:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(error.time_ms / 1000))
        where = f"{error.component}, task {error.task}" if error.component else f"worker {error.worker}"
        click.echo(f"{moment}  {where}, on {error.host}")
        click.echo("    " + error.error.strip().replace("\n", "\n    "))
    if status is not None and status.error:
        click.echo(f"{job.name} cannot run: {status.error}")
    elif not everything:
        click.echo(f"{job.name} has no errors")


@click.command("monitor", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.option(
    "-i",
    "interval",
    type=click.FloatRange(0.5),
    default=4.0,
    show_default=True,
    metavar="SECS",
    help="Seconds between two lines.",
)
@click.option("-m", "component", metavar="COMPONENT", help="This component only.")
@click.option("-n", "count", type=click.IntRange(1), metavar="N", help="End after N lines.")
def monitor(
    *, supervised: Supervised, name: str, interval: float, component: str | None, count: int | None
) -> None:
    """Print the throughput of the topology NAME, until Ctrl-C."""
    from millrace.topologies.supervisor.figures_reader import FiguresReader

    with supervised.board() as board:
        job = board.job(name)
    if component is not None and component not in job.components:
        known = ", ".join(sorted(job.components))
        raise CommandError(f"{job.name} has no component {component}; it has: {known}")
    reader = FiguresReader(supervised.target.bootstrap, supervised.target.properties)
    try:
        before = _totals(job, reader.catch_up())
        while count is None or count > 0:
            _read_for(reader, interval)
            now = _totals(job, reader.figures)
            rows = [
                (part, *(f"{(now[part][i] - before[part][i]) / interval:.0f}" for i in range(3)))
                for part in now
                if component in (None, part)
            ]
            print_table(("COMPONENT", "EXECUTED/S", "EMITTED/S", "FAILED/S"), rows)
            click.echo()
            before = now
            count = None if count is None else count - 1
    finally:
        reader.close()


def _read_for(reader: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        reader.open()
        if not reader.refresh(min(left, 1.0)):
            time.sleep(min(0.1, max(end - time.monotonic(), 0)))


def _totals(job: Job, figures: Any) -> dict[str, tuple[int, int, int]]:
    """Tuples that each component has executed, emitted and failed since it was submitted."""
    from millrace.topologies.supervisor.figures import ALL_TIME, merged, total

    sums = figures.of(job.id).within(ALL_TIME, time.time())
    result = {}
    for component, info in job.components.items():
        of_component = merged(sums[task] for task in info.tasks if task in sums)
        failed = total(of_component, "failed") + total(of_component, "tree_failed")
        result[component] = total(of_component, "executed"), total(of_component, "emitted"), failed
    return result


@click.command("debug", cls=KafkaCommand)
@supervisor_options
@click.argument("name")
@click.argument("component", required=False)
@click.option(
    "--percent",
    type=click.FloatRange(0, 100, min_open=True),
    default=10.0,
    show_default=True,
    help="Share of the tuples.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End after so long.")
@click.option("--max-samples", type=click.IntRange(1), metavar="N", help="End after N tuples.")
def debug(
    *,
    supervised: Supervised,
    name: str,
    component: str | None,
    percent: float,
    seconds: float | None,
    max_samples: int | None,
) -> None:
    """Print samples of the tuples that the topology NAME emits, until Ctrl-C."""
    from millrace.topologies.supervisor import submission

    with supervised.board() as board:
        job = board.job(name)
        samples = _samples(supervised, job, seconds)
        submission.debug(board, job, component, percent)
        try:
            for number, sample in enumerate(samples, 1):
                values = json.dumps(sample["values"], ensure_ascii=False)
                click.echo(f"{sample['component']}[{sample['task']}] {sample['stream']} {values}")
                if number == max_samples:
                    break
        finally:
            board.refresh(0)
            if job.name in board.jobs:
                submission.debug(board, board.jobs[job.name], component, 0)


def _samples(supervised: Supervised, job: Job, seconds: float | None) -> Iterator[dict[str, Any]]:
    """The samples that are written from now on."""
    from confluent_kafka import Consumer, TopicPartition

    from millrace.topologies.runtime.topics import sample_topic

    consumer = Consumer(
        {
            **supervised.target.properties,
            "bootstrap.servers": supervised.target.bootstrap,
            "group.id": "topology-samples",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(sample_topic(job.name), 0), timeout=30)
    consumer.assign([TopicPartition(sample_topic(job.name), 0, end)])
    return _read_samples(consumer, seconds)


def _read_samples(consumer: Any, seconds: float | None) -> Iterator[dict[str, Any]]:
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while deadline is None or time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                yield json.loads(message.value())
    finally:
        consumer.close()
