"""`millrace up`: the platform here and now."""

from millrace.cli.up.command import command

__all__ = ["command"]
