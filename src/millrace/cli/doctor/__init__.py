"""`millrace doctor`."""

from millrace.cli.doctor.command import command

__all__ = ["command"]
