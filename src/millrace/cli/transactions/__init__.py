"""`millrace transactions`: Kafka's kafka-transactions."""

from millrace.cli.transactions.command import command

__all__ = ["command"]
