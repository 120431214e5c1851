"""`millrace up`: a broker here and now."""

from pathlib import Path

import click

from millrace.cli.terminal.options import KafkaCommand, parse_pairs

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_DATA_DIR = Path("millrace-data")


@click.command("up", cls=KafkaCommand)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one."
)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on; 0.0.0.0 is all.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="Where the logs are kept.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="K=V", help="Any broker option, e.g. num.partitions=3."
)
def command(*, port: int, host: str, data_dir: Path, settings: tuple[str, ...]) -> None:
    """Start a broker here and now, with sensible defaults."""
    from millrace.cli.terminal.foreground import log_to_stderr, run
    from millrace.config import BrokerConfig

    log_to_stderr()
    defaults = {
        "listeners": f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}",
        "log.dirs": str(data_dir.expanduser().absolute()),
        # Local experiments start one consumer at a time, which should not wait for others.
        "group.initial.rebalance.delay.ms": "0",
    }
    run(BrokerConfig.from_properties(defaults | parse_pairs(settings, "--set")))
