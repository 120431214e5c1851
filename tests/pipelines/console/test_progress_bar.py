"""Progress in records and bytes, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from millrace.pipelines.console.progress_bar import Extent, ProgressBar, size


def test_bar_counts_records_and_bytes_on_a_terminal() -> None:
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=120)
    with ProgressBar("words", Extent(2000, 3_200_000), console) as bar:
        bar.update(500)
    assert "500/2,000 records" in printed.getvalue()
    assert "800 kB/3.2 MB" in printed.getvalue()


def test_lines_are_printed_at_intervals_without_a_terminal() -> None:
    printed = io.StringIO()
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    with ProgressBar(
        "words", Extent(2000, 4000), Console(file=printed, width=20), now=lambda: next(clock)
    ) as bar:
        bar.update(100)
        bar.update(500)
        bar.update(600)
    assert printed.getvalue().splitlines() == [
        "words: 2,000 records, 4.0 kB to read",
        "words: 500 of 2,000 records, 1.0 kB of 4.0 kB (25 %)",
    ]


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3e12, "3.0 TB")]
)
def test_sizes_have_units(count: float, text: str) -> None:
    assert size(count) == text
