"""Tables for people, on a terminal; in a pipe, commands keep Kafka's layout."""

import sys
from collections.abc import Iterable, Sequence
from typing import Literal


def is_for_people() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_terminal_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as wide as its contents, with numbers aligned to the right."""
    from rich.console import Console
    from rich.table import Table

    content = [list(row) for row in rows]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, header in enumerate(headers):
        justify: Literal["left", "right"] = (
            "right" if _are_numbers(row[number] for row in content) else "left"
        )
        table.add_column(header, justify=justify, overflow="fold")
    for row in content:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def _are_numbers(cells: Iterable[str]) -> bool:
    """Whether a column holds only numbers, and dashes for missing ones."""
    present = [cell for cell in cells if cell not in ("", "-")]
    return bool(present) and all(cell.removeprefix("-").isdecimal() for cell in present)
