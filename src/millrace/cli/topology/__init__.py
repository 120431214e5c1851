"""`millrace topology`: Storm's commands for topologies."""

from millrace.cli.topology.command import command

__all__ = ["command"]
