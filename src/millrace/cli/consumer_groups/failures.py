"""Failures as Kafka's tool prints them between its tables, where scripts look for them."""

import click


def print_failure(message: str) -> None:
    """Print a line to standard output, after an empty one."""
    click.echo(f"\nError: {message}")
