"""Results as tables on the terminal."""

import math

from rich.console import Console
from rich.table import Column, Table

from benchmarks.brokers import APACHE_KAFKA, MILLRACE
from benchmarks.figures import Figures


def show(console: Console, figures: Figures) -> None:
    """Print the comparison."""
    is_judged = figures.peer == APACHE_KAFKA
    table = Table("", "", *_right(MILLRACE, figures.peer, "ratio", *["bar"] * is_judged), "")
    previous = ""
    for row in figures.rows():
        title = "" if row.metric == previous else row.metric
        previous = row.metric
        style = {"pass": "green", "FAIL": "bold red"}.get(row.verdict)
        table.add_row(
            title,
            row.unit,
            number_text(row.millrace),
            number_text(row.peer),
            ratio_text(row.ratio),
            *([str(row.bar or ""), row.verdict] if is_judged else ["noise" if row.noisy else ""]),
            style=style,
        )
    console.print(table)


def show_columns(console: Console, columns: dict[str, dict[str, float]]) -> None:
    """Print the figures of several subjects side by side."""
    table = Table("", *_right(*columns))
    for figure in next(iter(columns.values())):
        table.add_row(figure, *(number_text(column[figure]) for column in columns.values()))
    console.print(table)


def number_text(value: float | None) -> str:
    """A number with three significant digits."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x" if ratio >= 0.02 else f"{ratio:.3f}x"


def _right(*titles: str) -> list[Column]:
    return [Column(title, justify="right") for title in titles]
