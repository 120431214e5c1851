"""`millrace console-consumer`."""

from millrace.cli.console_consumer.command import command

__all__ = ["command"]
