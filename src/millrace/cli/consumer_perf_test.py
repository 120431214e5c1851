"""`millrace consumer-perf-test`: Kafka's kafka-consumer-perf-test, driven by librdkafka."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, ManyValues, Target, broker_options, parse_pairs
from millrace.cli.terminal.progress import progress
from millrace.cli.terminal.topic_pattern import topic_pattern

MEBIBYTE = 1024 * 1024
RATES = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
CLIENT_ID = "perf-consumer-client"
OWN_GROUP = "perf-consumer"

# Java's SimpleDateFormat -> strftime, which has no format for milliseconds.
_DATE_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


@click.command("consumer-perf-test", cls=KafkaCommand)
@broker_options(config_names=("--consumer.config",))
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all topics that match.")
@click.option(
    "--num-records",
    "--messages",
    "num_records",
    required=True,
    type=click.IntRange(1),
    help="Number of records.",
)
@click.option(
    "--command-property",
    "command_property",
    cls=ManyValues,
    metavar="K=V ...",
    help="Properties of the consumer.",
)
@click.option("--group", metavar="ID", help="Read as a member of this group, from its committed offsets.")
@click.option(
    "--from-latest",
    is_flag=True,
    help="Without a committed offset, start with the next record, not the oldest.",
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1),
    default=1024 * 1024,
    help="Maximum bytes of a partition per fetch.",
)
@click.option(
    "--socket-buffer-size", type=click.IntRange(1), default=2 * 1024 * 1024, help="Size of SO_RCVBUF."
)
@click.option(
    "--timeout",
    is_flag=False,
    flag_value=10_000,
    default=10_000,
    type=click.IntRange(0),
    metavar="MS",
    help="Stop when no record arrives for this long.",
)
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for every reporting interval.")
@click.option("--reporting-interval", type=click.IntRange(1), default=5000, show_default=True, metavar="MS")
@click.option("--hide-header", is_flag=True, help="Omit the header line.")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True, help="Format of times.")
@click.option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end.")
@click.option("--threads", hidden=True)
@click.option("--num-fetch-threads", hidden=True)
def command(
    *,
    target: Target,
    topic: str | None,
    include: str | None,
    num_records: int,
    command_property: tuple[str, ...],
    from_latest: bool,
    fetch_size: int,
    socket_buffer_size: int,
    timeout: int,
    show_detailed_stats: bool,
    reporting_interval: int,
    hide_header: bool,
    date_format: str,
    print_metrics: bool,
    group: str | None,
    threads: str | None,
    num_fetch_threads: str | None,
) -> None:
    """Measure how fast records can be consumed."""
    if (topic is None) == (include is None):
        raise CommandError("give exactly one of --topic and --include")
    properties = {
        "client.id": CLIENT_ID,
        "check.crcs": "false",
        "queued.min.messages": "1000000",
        "max.partition.fetch.bytes": str(fetch_size),
        "receive.buffer.bytes": str(socket_buffer_size),
        "auto.offset.reset": "latest" if from_latest else "earliest",
        **target.properties,
        **parse_pairs(command_property, "--command-property"),
    }
    target = target.or_else(properties.get("bootstrap.servers"))
    from millrace.cli.console_consumer.group_reader import GroupReader, group_properties
    from millrace.cli.producer_perf_test.client_metrics import ClientMetrics

    metrics = ClientMetrics()
    reader = GroupReader(
        target,
        properties | group_properties(group, properties, OWN_GROUP),
        topic=topic,
        pattern=topic_pattern(include) if include else None,
        more_settings=metrics.settings() if print_metrics else {},
    )
    if not hide_header:
        click.echo(f"{'time, threadId' if show_detailed_stats else 'start.time, end.time'}, {RATES}")
    run = Run(
        _Stamp(date_format),
        reporting_interval / 1000 if show_detailed_stats else None,
        lambda: reader.rebalances.seconds,
    )
    try:
        with progress("consuming", num_records) as shown:
            for messages in reader.batches(timeout):
                run.take(messages, shown.echo)
                shown.update(run.count)
                if run.count >= num_records:
                    break
    finally:
        reader.close()
    if run.count < num_records:
        click.echo(
            "WARNING: Exiting before consuming the expected number of records:"
            f" timeout ({timeout} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    if not show_detailed_stats:
        click.echo(run.summary())
    if print_metrics:
        metrics.print("consumer-metrics")


class _Stamp:
    """Formats times in a Java date format."""

    def __init__(self, java_format: str) -> None:
        self._format = java_format

    def __call__(self, moment: float) -> str:
        when = datetime.fromtimestamp(moment)
        text = re.sub("S+", f"{when.microsecond // 1000:03d}", self._format)
        for java, python in _DATE_PARTS.items():
            text = text.replace(java, when.strftime(python))
        return text


@dataclass(slots=True)
class _Amount:
    count: int = 0
    bytes: int = 0
    rebalance_seconds: float = 0.0


class Run:
    """Counts consumed records, from the start of the command to the last record."""

    def __init__(
        self, stamp: _Stamp, interval_seconds: float | None, rebalance_seconds: Callable[[], float]
    ) -> None:
        self._stamp = stamp
        self._interval_seconds = interval_seconds
        self._rebalance_seconds = rebalance_seconds
        self._began = self._ended = self._reported_at = time.time()
        self._total = _Amount()
        self._reported = _Amount()

    @property
    def count(self) -> int:
        return self._total.count

    def take(self, messages: list[Any], echo: Callable[[str], object]) -> None:
        """Count messages, and print a line at the end of an interval."""
        now = time.time()
        if messages:
            self._total.count += len(messages)
            # len(message) is the length of its value.
            self._total.bytes += sum(map(len, messages))
            self._total.bytes += sum(len(key) for message in messages if (key := message.key()))
            self._ended = now
        self._total.rebalance_seconds = self._rebalance_seconds()
        if self._interval_seconds is not None and now - self._reported_at >= self._interval_seconds:
            echo(self._interval_line(now))
            self._reported = replace(self._total)
            self._reported_at = now

    def summary(self) -> str:
        """The line of the whole run."""
        columns = _columns(self._total, self._total, self._ended - self._began)
        return f"{self._stamp(self._began)}, {self._stamp(self._ended)}, {columns}"

    def _interval_line(self, now: float) -> str:
        new = _Amount(
            self._total.count - self._reported.count,
            self._total.bytes - self._reported.bytes,
            self._total.rebalance_seconds - self._reported.rebalance_seconds,
        )
        return f"{self._stamp(now)}, 0, {_columns(self._total, new, now - self._reported_at)}"


def _columns(total: _Amount, new: _Amount, seconds: float) -> str:
    """Total amounts, and the rates of new ones: over all the time, and over the time without rebalances."""
    seconds = max(seconds, 0.001)
    fetch_seconds = max(seconds - new.rebalance_seconds, 0.001)
    megabytes = new.bytes / MEBIBYTE
    return (
        f"{total.bytes / MEBIBYTE:.4f}, {megabytes / seconds:.4f}, {total.count}, {new.count / seconds:.4f},"
        f" {new.rebalance_seconds * 1000:.0f}, {fetch_seconds * 1000:.0f},"
        f" {megabytes / fetch_seconds:.4f}, {new.count / fetch_seconds:.4f}"
    )
