"""`millrace consumer-groups`: Kafka's kafka-consumer-groups."""

from millrace.cli.consumer_groups.command import command

__all__ = ["command"]
