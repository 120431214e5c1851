"""`millrace dump-log`."""

from millrace.cli.dump_log.command import command

__all__ = ["command"]
