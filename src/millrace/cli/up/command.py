"""The command `millrace up`."""

from pathlib import Path

import click

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import BOOTSTRAP_VARIABLE, KafkaCommand, parse_pairs

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
@click.option("--secure", is_flag=True, help="Encrypt and authenticate: TLS, a SCRAM user `admin`, and ACLs.")
@click.option("--only", metavar="NAME,...", help="Start these parts only; `broker` is one of them.")
@click.option("--without", metavar="NAME,...", help="Start everything but these parts.")
@click.option(
    "--service-port", "service_ports", multiple=True, metavar="NAME=PORT", help="Another port for a service."
)
@click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT,...",
    envvar=BOOTSTRAP_VARIABLE,
    help="Brokers for services that are started without one.",
)
def command(
    *,
    port: int,
    host: str,
    data_dir: Path,
    settings: tuple[str, ...],
    secure: bool,
    only: str | None,
    without: str | None,
    service_ports: tuple[str, ...],
    bootstrap: str | None,
) -> None:
    """Start the platform here and now: a broker and the services around it."""
    from millrace.cli.terminal.foreground import log_to_stderr, run
    from millrace.cli.up import choice
    from millrace.config import BrokerConfig

    log_to_stderr()
    with_broker, services = choice.chosen(only, without)
    services = choice.with_ports(services, parse_pairs(service_ports, "--service-port"))
    defaults = {
        "listeners": f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}",
        "log.dirs": str(data_dir.expanduser().absolute()),
        # Local experiments start one consumer at a time, which should not wait for others.
        "group.initial.rebalance.delay.ms": "0",
    }
    rows: dict[str, str] = {}
    if secure:
        from millrace.cli.up.secure import secure_properties

        # The services do not authenticate.
        with_broker, services = True, []
        added, rows = secure_properties(host, port, data_dir.expanduser().absolute())
        defaults |= added
    config = BrokerConfig.from_properties(defaults | parse_pairs(settings, "--set")) if with_broker else None
    services, missing = choice.installed(services)
    more = rows | choice.how_to_get(missing)
    if config is None and not services:
        raise CommandError(f"the services are not installed; {choice.HOW_TO_INSTALL}")
    if config is not None and not services:
        run(config, more)
        return
    # Imported only if there is something to watch: a broker alone stays small.
    from millrace.cli.up import platform
    from millrace.services.table import Settings

    around = Settings(bootstrap or f"{host}:{port}", platform.secrets_dir(config, data_dir), host)
    platform.run_platform(config, services, around, more)
