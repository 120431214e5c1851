"""`millrace reassign-partitions`: Kafka's kafka-reassign-partitions."""

from millrace.cli.reassign_partitions.command import command

__all__ = ["command"]
