"""Failures that Kafka's tool tells between its tables, where scripts look for them."""

import click


def print_failure(message: str) -> None:
    """A line on standard output, set off by an empty one."""
    click.echo(f"\nError: {message}")
