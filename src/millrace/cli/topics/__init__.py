"""`millrace topics`."""

from millrace.cli.topics.command import command

__all__ = ["command"]
