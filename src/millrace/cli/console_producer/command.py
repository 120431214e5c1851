"""`millrace console-producer`: Kafka's kafka-console-producer."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from millrace.cli.console_producer.line_reader import LineReader, NewRecord
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs, read_properties
from millrace.cli.terminal.registered_values import encoder
from millrace.cli.terminal.session import connected

# option -> the producer's property it sets
_PROPERTY_OPTIONS = {
    "request_required_acks": "acks",
    "compression_codec": "compression.type",
    "batch_size": "batch.size",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "timeout": "linger.ms",
    "request_timeout_ms": "request.timeout.ms",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "max_memory_bytes": "buffer.memory",
    "socket_buffer_size": "send.buffer.bytes",
    "max_block_ms": "max.block.ms",
}
_FLUSH_SECONDS = 0.2
# Sends a key to the same partition as Java's producers.
JAVA_PARTITIONER = "murmur2_random"


@click.command("console-producer", cls=KafkaCommand)
@broker_options(config_names=("--producer.config",))
@click.option("--topic", required=True, metavar="NAME", help="The topic to send to.")
@click.option(
    "--property",
    "--reader-property",
    "reader_property",
    multiple=True,
    metavar="K=V",
    help="Format of lines: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator,"
    " headers.key.separator, null.marker, ignore.error.",
)
@click.option(
    "--reader-config", type=click.Path(path_type=Path), help="Properties file with the same settings."
)
@click.option(
    "--producer-property",
    "--command-property",
    "producer_property",
    multiple=True,
    metavar="K=V",
    help="A property of the producer.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd.  [default without a value: gzip]",
)
@click.option("--registry", metavar="URL", help="Schema registry; lines are then JSON, sent with a schema.")
@click.option(
    "--schema",
    metavar="FILE|TEXT|VERSION",
    help="Schema of the values, to register or from the registry.  [default: the latest of the topic]",
)
@click.option(
    "--schema-type",
    type=click.Choice(["AVRO", "JSON", "PROTOBUF"], case_sensitive=False),
    help="Type of the schema.  [default: by the file's name: .avsc, .json, .proto]",
)
@click.option("--sync", is_flag=True, help="Wait for each record before sending the next.")
@click.option("--request-required-acks", metavar="ACKS", help="0, 1 or all (-1).  [default: all]")
@click.option("--timeout", metavar="MS", help="Time a record may wait for others to join its batch.")
@click.option(
    "--batch-size", "--max-partition-memory-bytes", "batch_size", metavar="BYTES", help="Size of batches."
)
@click.option("--message-send-max-retries", metavar="N", help="Number of retries.")
@click.option("--retry-backoff-ms", metavar="MS", help="Pause before a retry.")
@click.option("--request-timeout-ms", metavar="MS", help="Time the broker has to respond.")
@click.option("--metadata-expiry-ms", metavar="MS", hidden=True)
@click.option("--max-block-ms", metavar="MS", hidden=True)
@click.option("--max-memory-bytes", metavar="BYTES", hidden=True)
@click.option("--socket-buffer-size", metavar="BYTES", hidden=True)
@click.option("--line-reader", metavar="CLASS", hidden=True)
def command(
    *,
    target: Target,
    topic: str,
    reader_property: tuple[str, ...],
    reader_config: Path | None,
    producer_property: tuple[str, ...],
    registry: str | None,
    schema: str | None,
    schema_type: str | None,
    sync: bool,
    line_reader: str | None,
    **options: str | None,
) -> None:
    """Send the lines of standard input as records."""
    if line_reader is not None and not line_reader.endswith("LineMessageReader"):
        raise CommandError(f"--line-reader {line_reader}: Java classes cannot be used here; leave it out")
    settings = read_properties(reader_config) if reader_config else {}
    reader = LineReader.from_properties(settings | parse_pairs(reader_property, "--reader-property"))
    properties = {
        "partitioner": JAVA_PARTITIONER,
        **{name: text for option, name in _PROPERTY_OPTIONS.items() if (text := options[option]) is not None},
        **target.properties,
        **parse_pairs(producer_property, "--producer-property"),
        "bootstrap.servers": target.bootstrap,
    }
    with connected(target):
        # Fail at once if there is no broker: librdkafka would wait for one silently.
        pass
    if schema is not None and registry is None:
        raise CommandError("--schema needs --registry URL")
    encode = None if registry is None else encoder(registry, topic, schema, schema_type)
    delivery = Delivery(topic, properties)
    for record in reader.records(_lines()):
        if encode is not None and record.value is not None:
            record = record._replace(value=encode(record.value))
        delivery.send(record)
        if sync:
            delivery.wait()
    delivery.wait()
    if delivery.failed:
        raise CommandError(
            f"{delivery.failed} records were not delivered to {topic}; the last: {delivery.reason}"
        )


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input, with a prompt on a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from sys.stdin.buffer
        return
    while True:
        sys.stdout.write(">")
        sys.stdout.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            sys.stdout.write("\n")
            return
        yield line


class Delivery:
    """Sends records and counts those that were not delivered."""

    def __init__(self, topic: str, properties: dict[str, str]) -> None:
        from confluent_kafka import Producer

        from millrace.cli.terminal.client_properties import create

        self.failed = 0
        self.reason = ""
        self._topic = topic
        self._producer: Any = create(Producer, properties)

    def send(self, record: NewRecord) -> None:
        """Send a record; waits while the producer's buffer is full."""
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, headers=record.headers, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(_FLUSH_SECONDS)
            else:
                break
        self._producer.poll(0)

    def wait(self) -> None:
        """Wait until every record was delivered or has failed."""
        while self._producer.flush(_FLUSH_SECONDS):
            pass

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failed += 1
            self.reason = error.str()
