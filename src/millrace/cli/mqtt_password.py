"""`millrace mqtt-password`: adds a user to the password file of `millrace mqtt`."""

from pathlib import Path

import click

from millrace.cli.terminal.options import KafkaCommand


@click.command("mqtt-password", cls=KafkaCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("user")
@click.password_option(help="The password; asked for if it is not given.")
def command(*, file: Path, user: str, password: str) -> None:
    """Add USER to FILE, or change the password."""
    from millrace.mqtt.passwords import set_password

    set_password(file, user, password)
    click.echo(f"{file} has a password for {user}")
