"""`millrace mqtt`: an MQTT server in front of the log."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.terminal.client_properties import translate
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options

if TYPE_CHECKING:
    from millrace.mqtt.server import Listener
    from millrace.mqtt.settings import Settings

DEFAULT_PORT = 1883
LOCAL = ("127.0.0.1", "::1", "localhost")


@click.command("mqtt", cls=KafkaCommand)
@broker_options(broker_list=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all.")
@click.option(
    "--port",
    type=click.IntRange(-1, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port without TLS. 0: a free one; -1: none.",
)
@click.option("--ws-port", type=click.IntRange(0, 65535), help="Port for WebSockets, such as 8884.")
@click.option(
    "--ws-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A web site whose pages may use the WebSocket.",
)
@click.option("--tls-port", type=click.IntRange(0, 65535), help="Port with TLS, such as 8883.")
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), metavar="PEM", help="The server's certificate chain."
)
@click.option(
    "--tls-key", type=click.Path(path_type=Path), metavar="PEM", help="Its key, if it is in another file."
)
@click.option(
    "--tls-client-ca",
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Accept only clients with a certificate of this authority.",
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rules between MQTT topics and log topics (TOML).",
)
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Accept only these users; `millrace mqtt-password` writes it.",
)
@click.option(
    "--sasl-users",
    type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
    help="Accept only users that the log accepts by this mechanism.",
)
@click.option(
    "--name", metavar="NAME", help="Name of this server towards the log.  [default: mqtt-HOST-PORT]"
)
@click.option(
    "--max-packet-size",
    type=click.IntRange(1024, 256 << 20),
    default=1_000_000,
    show_default=True,
    help="Bytes of the largest packet.",
)
def command(
    *,
    target: Target,
    host: str,
    port: int,
    ws_port: int | None,
    origins: tuple[str, ...],
    tls_port: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    rules: Path | None,
    password_file: Path | None,
    sasl_users: str | None,
    name: str | None,
    max_packet_size: int,
) -> None:
    """Serve MQTT 3.1.1 and 5: messages are records of the log, and records are messages."""
    from millrace.cli.terminal.foreground import log_to_stderr
    from millrace.mqtt.rules import default_rules, load_rules
    from millrace.mqtt.server import Listener
    from millrace.mqtt.settings import Settings

    listeners = [Listener(host, port)] if port >= 0 else []
    tls = None
    if tls_port is not None:
        tls = _tls(tls_cert, tls_key, tls_client_ca)
        listeners.append(Listener(host, tls_port, tls))
    if ws_port is not None:
        if importlib.util.find_spec("websockets") is None:
            raise CommandError("--ws-port needs another library: pip install 'millrace[services]'")
        # With a certificate, WebSockets are encrypted as well.
        listeners.append(Listener(host, ws_port, tls, is_websocket=True, origins=origins))
    if not listeners:
        raise CommandError("there is no port to listen on; give --port, --tls-port or --ws-port")
    settings = Settings(
        bootstrap=target.bootstrap,
        name=name or f"mqtt-{socket.gethostname()}-{port if port > 0 else tls_port or os.getpid()}",
        rules=default_rules() if rules is None else load_rules(rules),
        properties=translate(target.properties),
        max_packet_size=max_packet_size,
    )
    if password_file is not None and sasl_users is not None:
        raise CommandError("give either --password-file or --sasl-users")
    log_to_stderr()
    import uvloop

    uvloop.run(_serve(settings, listeners, password_file, sasl_users))
    click.echo("stopped")


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext:
    if certificate is None:
        raise CommandError("--tls-port needs the server's certificate: --tls-cert")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"the certificate cannot be used: {error}") from error
    return context


async def _serve(
    settings: Settings, listeners: list[Listener], password_file: Path | None, sasl_users: str | None
) -> None:
    from millrace.mqtt.log.users import SaslUsers
    from millrace.mqtt.passwords import Anyone, Authenticator, PasswordFile
    from millrace.mqtt.server import Server

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    authenticator: Authenticator = Anyone()
    if password_file is not None:
        authenticator = PasswordFile(password_file)
    elif sasl_users is not None:
        authenticator = SaslUsers(settings, sasl_users)
    server = Server(settings, authenticator)
    try:
        await server.start(listeners)
        _print_banner(
            server.addresses, listeners, settings.bootstrap, is_open=isinstance(authenticator, Anyone)
        )
        await stopping.wait()
    except OSError as error:
        ports = ", ".join(str(listener.port) for listener in listeners)
        raise CommandError(
            f"cannot listen on {ports}: {error.strerror or error}; pass another --port"
        ) from error
    finally:
        await server.stop()


def _print_banner(
    addresses: list[tuple[str, int]], listeners: list[Listener], bootstrap: str, *, is_open: bool
) -> None:
    click.echo(f"{click.style('millrace mqtt', bold=True, fg='cyan')} is ready")
    for (host, port), listener in zip(addresses, listeners, strict=True):
        scheme = "ws" if listener.is_websocket else "mqtt"
        scheme += "s" if listener.tls is not None else ""
        click.echo(f"  {'address':<8} {scheme}://{host}:{port}")
    click.echo(f"  {'log':<8} {bootstrap}")
    if is_open and any(host not in LOCAL for host, _ in addresses):
        warning = "anyone who can reach it may read and publish everything: there is no --password-file"
        click.echo(f"  {'access':<8} {click.style(warning, fg='yellow')}")
    click.echo("  Ctrl-C stops it")
