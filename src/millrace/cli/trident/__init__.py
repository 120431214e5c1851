"""`millrace trident`: runs Trident topologies, and looks into their states."""

from millrace.cli.trident.command import command

__all__ = ["command"]
