"""`millrace cluster`: start a cluster on this machine, and look at any."""

from millrace.cli.cluster.command import command

__all__ = ["command"]
