"""`millrace dump-log`: Kafka's kafka-dump-log, for segments, indexes and snapshots on disk."""

from pathlib import Path

import click

from millrace.cli.dump_log.indexes import Complaints, dump_offset_index, dump_time_index
from millrace.cli.dump_log.records import RecordDecoder, decode_offsets, decode_text, decode_transactions
from millrace.cli.dump_log.segments import SegmentDump
from millrace.cli.dump_log.snapshots import dump_snapshot, dump_transaction_index
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand

UNLIMITED = 2**31 - 1
LATER_DECODERS = ("cluster_metadata_decoder", "remote_log_metadata_decoder", "share_group_state_decoder")


@click.command("dump-log", cls=KafkaCommand)
@click.option(
    "--files", required=True, metavar="FILE,...", help=".log, .index, .timeindex, .txnindex, .snapshot."
)
@click.option("--print-data-log", is_flag=True, help="Print keys and values; includes --deep-iteration.")
@click.option("--deep-iteration", is_flag=True, help="Print every record, not only batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option("--verify-index-only", is_flag=True, help="Verify indexes without printing their entries.")
@click.option("--index-sanity-check", is_flag=True, help="Only check indexes as a starting broker does.")
@click.option(
    "--max-bytes", type=click.IntRange(1), default=UNLIMITED, help="Read only the first bytes of a segment."
)
@click.option("--max-message-size", type=int, hidden=True, help="Accepted: batches of any size are read.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option("--key-decoder-class", is_flag=False, flag_value="", hidden=True)
@click.option("--value-decoder-class", is_flag=False, flag_value="", hidden=True)
@click.option("--cluster-metadata-decoder", is_flag=True, hidden=True)
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True)
@click.option("--share-group-state-decoder", is_flag=True, hidden=True)
def command(
    *,
    files: str,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int,
    max_message_size: int | None,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    **later_decoders: bool,
) -> None:
    """Print and verify segment, index and snapshot files."""
    for name in LATER_DECODERS:
        if later_decoders[name]:
            raise CommandError(f"--{name.replace('_', '-')} is not supported: millrace keeps no such topic")
    decode: RecordDecoder | None = decode_text if print_data_log else None
    if offsets_decoder or transaction_log_decoder:
        decode = decode_offsets if offsets_decoder else decode_transactions
    segments = SegmentDump(
        decode=decode,
        deep=deep_iteration or decode is not None,
        skip_metadata=skip_record_metadata,
        max_bytes=max_bytes if max_bytes < UNLIMITED else None,
    )
    complaints = Complaints()
    for name in files.split(","):
        path = Path(name.strip())
        click.echo(f"Dumping {path}")
        _check(path)
        match path.suffix:
            case ".log":
                segments.dump(path)
            case ".index":
                dump_offset_index(path, complaints, verify_index_only, index_sanity_check)
            case ".timeindex":
                dump_time_index(path, complaints, verify_index_only, index_sanity_check)
            case ".snapshot":
                dump_snapshot(path)
            case ".txnindex":
                dump_transaction_index(path)
            case _:
                click.echo(f"Ignoring unknown file {path}", err=True)
    complaints.print()
    segments.print_gaps()


def _check(path: Path) -> None:
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    if path.suffix in (".log", ".index", ".timeindex") and not path.stem.isdecimal():
        raise CommandError(
            f"{path.name}: a segment's files are named by its first offset, such as {0:020d}.log"
        )
