"""The layout of Kafka's tables of groups: columns of a least width, the last one as it comes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from millrace.cli.terminal.tables import is_for_people, print_terminal_table

MISSING = "-"
AS_IT_COMES = 0


class Column(NamedTuple):
    """A column's name and least width; `grows` says whether the others make room for longer contents."""

    name: str
    width: int = AS_IT_COMES
    grows: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows; in a pipe exactly as Kafka's tool does, so that scripts can cut them into columns."""
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
    """What stands in a cell; a dash where nothing is known."""
    return MISSING if cell is None else str(cell)
