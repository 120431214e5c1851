"""`millrace console-consumer`: Kafka's kafka-console-consumer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from millrace.cli.console_consumer.record_format import RecordFormat
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options, parse_pairs, read_properties
from millrace.cli.terminal.output import is_one_stream
from millrace.cli.terminal.registered_values import decoder
from millrace.cli.terminal.topic_pattern import topic_pattern

if TYPE_CHECKING:
    from millrace.cli.console_consumer.reader import Reader

OWN_GROUP = "console-consumer"
SILENT_FORMATTERS = ("NoOpMessageFormatter",)
EARLIEST, LATEST = "earliest", "latest"
RESET = "auto.offset.reset"
DEFAULT_FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter")


@click.command("console-consumer", cls=KafkaCommand)
@broker_options(config_names=("--consumer.config",))
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", "--whitelist", "include", metavar="REGEX", help="Read all topics that match.")
@click.option("--partition", type=click.IntRange(0), help="Read only this partition.")
@click.option("--offset", metavar="N|earliest|latest", help="Offset to start at.  [default: latest]")
@click.option(
    "--from-beginning", is_flag=True, help="Without a committed offset, start with the oldest record."
)
@click.option("--max-messages", type=int, metavar="N", help="Stop after this many records.")
@click.option("--timeout-ms", type=int, metavar="MS", help="Stop when no record arrives for this long.")
@click.option("--group", metavar="ID", help="Read as a member of this group, from its committed offsets.")
@click.option(
    "--property",
    "--formatter-property",
    "formatter_property",
    multiple=True,
    metavar="K=V",
    help="Parts to print: print.key, print.value, print.timestamp, print.offset, print.partition,"
    " print.headers, print.epoch, print.delivery (true or false); key.separator, line.separator,"
    " headers.separator, null.literal, key.deserializer, value.deserializer.",
)
@click.option(
    "--formatter-config", type=click.Path(path_type=Path), help="Properties file with the same settings."
)
@click.option(
    "--consumer-property",
    "--command-property",
    "consumer_property",
    multiple=True,
    metavar="K=V",
    help="A property of the consumer.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed hides records of open and aborted transactions.",
)
@click.option("--skip-message-on-error", is_flag=True, help="Continue after a record that cannot be printed.")
@click.option("--key-deserializer", metavar="CLASS", help="Deserializer of keys, e.g. LongDeserializer.")
@click.option("--value-deserializer", metavar="CLASS", help="Deserializer of values.")
@click.option(
    "--registry", metavar="URL", help="Schema registry; values are printed as JSON by their schemas."
)
@click.option("--formatter", metavar="CLASS", hidden=True)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
def command(
    *,
    target: Target,
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    **options: Any,
) -> None:
    """Print the records of a topic."""
    _check_start(topic, include, partition, offset, from_beginning)
    properties = _consumer_properties(target, options["consumer_property"], from_beginning)
    properties["isolation.level"] = isolation_level
    printer = Printer(_record_format(options), max_messages, skip_message_on_error)
    reader: Reader
    if partition is not None and topic is not None:
        if options["group"] is not None:
            raise CommandError("Options group and partition cannot be specified together.")
        from millrace.cli.console_consumer.partition_reader import PartitionReader

        reader = PartitionReader(
            target,
            properties,
            topic=topic,
            partition=partition,
            offset=int(offset) if offset is not None and offset.isdecimal() else None,
            from_beginning=from_beginning or offset == EARLIEST,
        )
    else:
        from millrace.cli.console_consumer.group_reader import GroupReader, group_properties

        properties |= group_properties(options["group"], properties, OWN_GROUP)
        pattern = topic_pattern(include) if include else None
        reader = GroupReader(target, properties, topic=topic, pattern=pattern)
    _print_all(reader, printer, timeout_ms)


def _print_all(reader: Reader, printer: Printer, timeout_ms: int | None) -> None:
    is_line_open = False
    try:
        for messages in reader.batches(timeout_ms, printer.batch):
            if not printer.print(messages):
                break
    except KeyboardInterrupt:
        # The terminal has printed ^C.
        is_line_open = sys.stderr.isatty()
    finally:
        if is_line_open or (printer.is_line_open and is_one_stream()):
            click.echo(err=True)
        click.echo(f"Processed a total of {printer.count} messages", err=True)
        reader.close()


def _check_start(
    topic: str | None, include: str | None, partition: int | None, offset: str | None, from_beginning: bool
) -> None:
    if (topic is None) == (include is None):
        raise CommandError("give exactly one of --topic and --include")
    if partition is not None and topic is None:
        raise CommandError("--partition needs --topic")
    if offset is not None and partition is None:
        raise CommandError("The partition is required when offset is specified: add --partition N")
    if offset is not None and from_beginning:
        raise CommandError("--from-beginning and --offset cannot be specified together")
    if offset is not None and offset not in (EARLIEST, LATEST) and not offset.isdecimal():
        raise CommandError(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', or a"
            " non-negative long."
        )


def _consumer_properties(target: Target, pairs: tuple[str, ...], from_beginning: bool) -> dict[str, str]:
    properties = {**target.properties, **parse_pairs(pairs, "--consumer-property")}
    reset = properties.setdefault(RESET, EARLIEST if from_beginning else LATEST)
    if from_beginning and reset != EARLIEST:
        raise CommandError(
            f"Can't simultaneously specify --from-beginning and '{RESET}={reset}', please remove one option"
        )
    return properties


def _record_format(options: dict[str, Any]) -> RecordFormat | None:
    """The format of records; None if nothing is printed."""
    formatter = (options["formatter"] or "").rpartition(".")[2]
    if formatter in SILENT_FORMATTERS:
        return None
    if formatter and formatter not in DEFAULT_FORMATTERS:
        raise CommandError(
            f"--formatter {options['formatter']}: Java classes cannot be used here; leave it out"
        )
    file = options["formatter_config"]
    settings = read_properties(file) if file else {}
    settings |= parse_pairs(options["formatter_property"], "--formatter-property")
    for field in ("key", "value"):
        if options[f"{field}_deserializer"] is not None:
            settings[f"{field}.deserializer"] = options[f"{field}_deserializer"]
    shape = RecordFormat.from_properties(settings)
    if options["registry"] is not None:
        shape.value = decoder(options["registry"])
    return shape


class Printer:
    """Writes records to standard output, up to a maximum."""

    def __init__(self, shape: RecordFormat | None, max_messages: int | None, skip_errors: bool) -> None:
        self.count = 0
        self.is_line_open = False
        self._format = shape
        self._left = max_messages if max_messages is not None and max_messages >= 0 else None
        self._skip_errors = skip_errors
        self._output: BinaryIO = sys.stdout.buffer

    @property
    def batch(self) -> int:
        """Number of records to read at a time."""
        return 1000 if self._left is None else max(1, min(self._left, 1000))

    def print(self, messages: list[Any]) -> bool:
        """Print records; False once the maximum is reached."""
        wanted = messages if self._left is None else messages[: self._left]
        for message in wanted:
            self._print_one(message)
        if messages:
            self._output.flush()
        self.count += len(wanted)
        if self._left is not None:
            self._left -= len(wanted)
        return self._left != 0

    def _print_one(self, message: Any) -> None:
        if self._format is None:
            return
        try:
            text = self._format.format(message)
        except CommandError as error:
            if not self._skip_errors:
                raise
            position = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
            print(f"skipped {position}: {error.message}", file=sys.stderr)
        else:
            self._output.write(text)
            self.is_line_open = not text.endswith(b"\n") if text else self.is_line_open
