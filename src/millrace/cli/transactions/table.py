"""The layout of Kafka's tables of transactions: columns as wide as their contents, a tab after each."""

from collections.abc import Iterable, Sequence

import click

from millrace.cli.terminal.tables import is_for_people, print_terminal_table

NONE = "None"


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows; in a pipe in the exact layout of Kafka's tool."""
    content = [[NONE if cell is None else str(cell) for cell in row] for row in rows]
    if is_for_people():
        print_terminal_table(headers, content)
        return
    widths = [max(map(len, column)) for column in zip(headers, *content, strict=True)]
    for row in [headers, *content]:
        click.echo("".join(f"{cell.ljust(width)}\t" for cell, width in zip(row, widths, strict=True)))
