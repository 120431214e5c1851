"""The demo: its board, its display, and its end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from examples.demo.board import Board, Row, percentile
from examples.demo.feed import Feed
from examples.demo.figures import Figures
from examples.demo.screen import Screen, bar, change, plain, sparkline
from rich.console import Console

from millrace.testing import Broker

from .. import jvm
from ..waiting import until

ROOT = Path(__file__).parents[2]
STEP, LENGTH = 5, 30
NOON = 1794830400


class Stage:
    """A feed that writes nothing, and a board that reads the counts of the test."""

    def __init__(self, bootstrap: str) -> None:
        self.feed = Feed(bootstrap, "tweets", 1, 7, step_seconds=STEP)
        self.board = Board(bootstrap, "trending", 1, self.feed, window_seconds=LENGTH, step_seconds=STEP)
        self.board.start()
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._counts: Counter[tuple[int, str]] = Counter()

    def count(self, second: int, **numbers: int) -> None:
        """Write counts as the pipeline does after this many more tweets, and wait until they are read."""
        wanted = self.board.records + len(numbers) * LENGTH // STEP
        last = NOON + second // STEP * STEP
        for start in range(last, last - LENGTH, -STEP):
            for name, number in numbers.items():
                self._counts[start, name] += number
                window = {"start": datetime.fromtimestamp(start, UTC).isoformat()}
                value = {"window": window, "hashtag": f"#{name}", "count": self._counts[start, name]}
                self._producer.produce("trending", json.dumps(value))
        self._producer.flush()
        deadline = time.monotonic() + 10
        while self.board.records < wanted and time.monotonic() < deadline:
            time.sleep(0.01)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Broker() as broker:
        stage = Stage(broker.bootstrap)
        yield stage
        stage.board.stop()


def test_board_shows_the_window_that_ends_next_and_the_changes(stage: Stage) -> None:
    stage.count(0, rising=1, falling=9)
    stage.count(12, falling=1)
    stage.board.tick()
    stage.count(29, rising=19, new=3)
    assert stage.board.rows() == [
        Row(1, "#rising", 20, 2, (1, 0, 0, 0, 0, 19)),
        Row(2, "#falling", 10, 1, (9, 0, 1, 0, 0, 0)),
        Row(3, "#new", 3, None, (0, 0, 0, 0, 0, 3)),
    ]
    stage.count(30, new=1)
    # Tweets of the first five seconds are now older than half a minute.
    assert [(row.hashtag, row.count) for row in stage.board.rows()] == [
        *[("#rising", 19), ("#new", 4), ("#falling", 1)]
    ]


def test_board_measures_the_latency_of_every_hashtag_once(stage: Stage) -> None:
    stage.count(0, other=1)
    now = time.time()
    stage.feed.times[NOON, "#late"] = [now - 2, now, now, now + 3600]
    stage.count(0, late=2)
    stage.count(1, late=1)
    assert stage.board.counted == 3
    # The first was written before any result: it waited for Spark to start.
    assert stage.board.latencies_ms.total() == stage.board.recent_latencies_ms().total() == 2
    assert max(stage.board.latencies_ms) < 10_000


def test_percentiles() -> None:
    assert percentile(Counter({10: 98, 20: 1, 500: 1}), 50) == 10
    assert percentile(Counter({10: 98, 20: 1, 500: 1}), 99) == 20
    assert percentile(Counter(), 50) is None


def test_frame_has_the_top_ten_and_the_figures(stage: Stage) -> None:
    class Meter:
        figures = Figures(tweets_per_second=2034, p50_ms=412, p99_ms=12_345, mode="micro-batch")

    console = Console(width=100, record=True, file=StringIO())
    screen = Screen(stage.feed, stage.board, Meter())  # type: ignore[arg-type]
    console.print(screen)
    assert "Spark is starting" in console.export_text()
    stage.count(0, **{"日本": 1200, "love": 600})
    console.print(screen)
    frame = console.export_text()
    assert "#日本" in frame
    assert "1,200" in frame
    assert "2,034 tweets/s" in frame
    assert "412 ms" in frame
    assert "12.3 s" in frame
    assert "#日本 1,200" in plain(7, stage.board.rows(), Meter.figures)


def test_bars_sparklines_and_changes() -> None:
    assert bar(1, 4) == "━━━━"
    assert bar(0.6, 4) == "━━╸"
    assert sparkline([0, 7, 14]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    changes = [change(Row(2, "#a", 1, before, ())).plain for before in (None, 2, 5, 1)]
    assert changes == ["new", "·", "▲3", "▼1"]


def demo(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Run the demo without a terminal; its temporary files go to the directory."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--rate", "200", *arguments],
        cwd=ROOT,
        env={**os.environ, **jvm.ENVIRONMENT, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; a process that ended without a parent may stay a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    started = demo(tmp_path, "--seconds", "600")
    assert started.stdout is not None
    for line in started.stdout:
        if " tweets/s in" in line:
            break
    children = psutil.Process(started.pid).children(recursive=True)
    assert len(children) >= 2
    started.send_signal(signal.SIGINT)
    printed, errors = started.communicate(timeout=60)
    assert started.returncode == 0, errors
    assert "everything is stopped and removed" in printed
    until(lambda: not [child for child in children if is_alive(child)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proof
@pytest.mark.timeout(240)
def test_demo_on_a_running_broker_ends_and_removes_its_topics(tmp_path: Path) -> None:
    with Broker() as broker:
        ended = demo(tmp_path, "--seconds", "3", "--bootstrap-server", broker.bootstrap)
        printed, errors = ended.communicate(timeout=200)
        assert ended.returncode == 0, errors
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        left = [name for name in client.list_topics(timeout=10).topics if not name.startswith("__")]
        groups = [group.group_id for group in client.list_consumer_groups().result().valid]
    assert " tweets/s in" in printed
    assert "p99" in printed
    assert (left, groups) == ([], [])
