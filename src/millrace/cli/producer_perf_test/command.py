"""`millrace producer-perf-test`: Kafka's kafka-producer-perf-test, driven by librdkafka."""

from __future__ import annotations

import itertools
import random
import string
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.producer_perf_test.latency import Report
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, ManyValues, Target, broker_options, parse_pairs
from millrace.cli.terminal.progress import Progress, progress
from millrace.cli.terminal.session import connected

if TYPE_CHECKING:
    from millrace.cli.producer_perf_test.timed_transactions import TimedTransactions

# Records sent between two checks of the clock and of deliveries.
STRIDE = 1000
# With a limited rate, records are sent in bursts of at most this duration.
BURST_SECONDS = 0.01
WAIT_SECONDS = 0.1
METADATA_SECONDS = 30.0
CLIENT_ID = "perf-producer-client"


@click.command("producer-perf-test", cls=KafkaCommand)
@broker_options(config_names=("--producer.config",))
@click.option("--topic", required=True, metavar="NAME", help="The topic to send to.")
@click.option("--num-records", required=True, type=click.IntRange(1), help="Number of records to send.")
@click.option("--record-size", type=click.IntRange(1), metavar="BYTES", help="Send values of random letters.")
@click.option(
    "--payload-file", type=click.Path(path_type=Path), help="Send values picked at random from a file."
)
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Separator of the file's values.")
@click.option("--payload-monotonic", is_flag=True, help="Send the numbers 0, 1, 2, ...")
@click.option(
    "--throughput", required=True, type=float, metavar="N", help="Records per second; -1 is no limit."
)
@click.option(
    "--producer-props",
    "--command-property",
    "producer_props",
    cls=ManyValues,
    metavar="K=V ...",
    help="Properties of the producer.",
)
@click.option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end.")
@click.option(
    "--warmup-records",
    type=click.IntRange(0),
    default=0,
    help="Records that do not count for the steady state.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="Time between lines.",
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions, under this id.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1),
    metavar="MS",
    help="Commit transactions after this time.  [default with an id: 3000]",
)
def command(
    *,
    target: Target,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    producer_props: tuple[str, ...],
    print_metrics: bool,
    warmup_records: int,
    reporting_interval: int,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
) -> None:
    """Measure how fast records can be produced."""
    properties = {**target.properties, **parse_pairs(producer_props, "--producer-props")}
    if warmup_records >= num_records:
        raise CommandError("--warmup-records must be fewer than --num-records")
    values = _values(record_size, payload_file, payload_delimiter, payload_monotonic)
    target = target.or_else(properties.get("bootstrap.servers"))
    with connected(target):
        # Fail at once if there is no broker: librdkafka would wait for one silently.
        pass
    from confluent_kafka import Producer

    from millrace.cli.producer_perf_test.client_metrics import ClientMetrics
    from millrace.cli.producer_perf_test.timed_transactions import TimedTransactions
    from millrace.cli.producer_perf_test.timed_transactions import transactional_id as name_transactions
    from millrace.cli.terminal.client_properties import create

    metrics = ClientMetrics()
    properties = {"client.id": CLIENT_ID, **properties, "bootstrap.servers": target.bootstrap}
    name = name_transactions(transactional_id, properties, transaction_duration_ms)
    if name is not None:
        properties["transactional.id"] = name
    producer: Any = create(Producer, properties, metrics.settings() if print_metrics else None)
    # Look the partitions up before the measurement.
    producer.list_topics(topic, METADATA_SECONDS)
    if warmup_records:
        click.echo(
            f"Warmup first {warmup_records} records."
            " Steady state results will print after the complete test summary."
        )
    transactions = TimedTransactions(producer, transaction_duration_ms) if name is not None else None
    report = Report(num_records, warmup_records, reporting_interval, time.monotonic())
    run = Run(producer, topic, report, transactions)
    with progress("producing", num_records) as shown:
        run.send(values, num_records, throughput, shown)
    run.report.print_summary(time.monotonic())
    if print_metrics:
        metrics.print("producer-metrics")
    if run.failed:
        raise CommandError(f"{run.failed} records were not delivered; the last: {run.reason}")


def _values(
    record_size: int | None, payload_file: Path | None, delimiter: str, monotonic: bool
) -> Iterator[bytes]:
    """An endless stream of values."""
    if (record_size is not None) + (payload_file is not None) + monotonic != 1:
        raise CommandError("give exactly one of --record-size, --payload-file and --payload-monotonic")
    if monotonic:
        return (b"%d" % number for number in itertools.count())
    if payload_file is not None:
        separator = delimiter.encode().decode("unicode_escape").encode()
        payloads = [part for part in payload_file.read_bytes().split(separator) if part]
        if not payloads:
            raise CommandError(f"{payload_file} holds no payloads")
        return (random.choice(payloads) for _ in itertools.count())
    assert record_size is not None
    return itertools.repeat("".join(random.choices(string.ascii_uppercase, k=record_size)).encode())


class Run:
    """Sends records at the allowed rate, and collects the latency of each acknowledgement."""

    def __init__(
        self, producer: Any, topic: str, report: Report, transactions: TimedTransactions | None
    ) -> None:
        self.report = report
        self.failed = 0
        self.reason = ""
        self._producer = producer
        self._topic = topic
        self._transactions = transactions
        self._latencies_ms = array("d")

    def send(self, values: Iterator[bytes], count: int, per_second: float, shown: Progress) -> None:
        """Send this many records and wait for all of them."""
        began = time.monotonic()
        stride = STRIDE if per_second <= 0 else max(1, min(STRIDE, int(per_second * BURST_SECONDS)))
        sent = 0
        while sent < count:
            burst = min(stride, count - sent)
            if self._transactions:
                self._transactions.begin()
            self._send_burst(itertools.islice(values, burst))
            sent += burst
            self._collect(shown)
            if self._transactions:
                self._transactions.commit_if_due()
            if per_second > 0:
                self._wait_until(began + sent / per_second)
        while self._producer.flush(WAIT_SECONDS):
            self._collect(shown)
        if self._transactions:
            self._transactions.commit()
        self._collect(shown)

    def _send_burst(self, values: Iterator[bytes]) -> None:
        produce, poll, topic, delivered = (
            self._producer.produce,
            self._producer.poll,
            self._topic,
            self._delivered,
        )
        total = 0
        for value in values:
            total += len(value)
            while True:
                try:
                    produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:
                    poll(WAIT_SECONDS)
        self.report.bytes += total

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._latencies_ms.append(message.latency() * 1000)
        else:
            self.failed += 1
            self.reason = error.str()

    def _collect(self, shown: Progress) -> None:
        self._producer.poll(0)
        self.report.add(self._latencies_ms, time.monotonic(), shown.echo)
        del self._latencies_ms[:]
        shown.update(self.report.count)

    def _wait_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._producer.poll(left)
