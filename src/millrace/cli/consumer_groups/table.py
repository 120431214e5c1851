"""The layout of Kafka's tables of groups: columns with a minimum width, except for the last one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from millrace.cli.terminal.tables import is_for_people, print_terminal_table

MISSING = "-"
NO_MINIMUM = 0


class Column(NamedTuple):
    """A column's name and minimum width; `grows` says whether longer contents widen it."""

    name: str
    width: int = NO_MINIMUM
    grows: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows; in a pipe in the exact layout of Kafka's tool, which scripts rely on."""
    content = [[text(cell) for cell in row] for row in rows]
    headers = [column.name for column in columns]
    if is_for_people():
        print_terminal_table(headers, content)
        return
    widths = [
        max([column.width, *(len(row[number]) for row in content if column.grows)])
        for number, column in enumerate(columns)
    ]
    for row in [headers, *content]:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def text(cell: object) -> str:
    """The text of a cell; a dash for None."""
    return MISSING if cell is None else str(cell)
