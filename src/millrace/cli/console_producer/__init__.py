"""`millrace console-producer`."""

from millrace.cli.console_producer.command import command

__all__ = ["command"]
