"""The platform at work: a log, a stream of tweets, and Spark, which counts their hashtags.

Starts a broker, writes tweets to it, runs examples/trending.py, shows the top ten for a minute, and removes
everything again. Without a terminal it prints lines instead.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from rich.console import Console
from rich.live import Live

from examples.demo.board import Board, percentile
from examples.demo.feed import Feed
from examples.demo.figures import Meter
from examples.demo.screen import WIDTH, Screen, milliseconds, plain
from examples.trending import trending
from millrace import jars
from millrace.pipelines import Pipeline, PipelineError, Run, RunOptions
from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.spark.session import require_java, session
from millrace.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
WINDOW_SECONDS, STEP_SECONDS = 30, 5
FRAMES_PER_SECOND = 5
LINE_SECONDS = 5
STOP_SECONDS = 30.0


class Demo:
    """One run of the demo. The stack ends everything that it starts, in reverse order."""

    def __init__(self, options: argparse.Namespace, console: Console, stack: ExitStack) -> None:
        self.options = options
        self.console = console
        self.stack = stack
        # The tweets that arrive while Spark starts are read in several batches, so that results appear soon.
        self.pipeline = _changed(trending, options={"maxOffsetsPerTrigger": f"{10 * options.rate:.0f}"})
        self.bootstrap: str = options.bootstrap_server

    def run(self) -> None:
        require_java()
        self._start_log()
        self._create_topics()
        feed, board, meter = self._start_streams()
        self._fetch_jars()
        screen = Screen(feed, board, meter)
        shown = Live(
            screen, console=self.console, refresh_per_second=FRAMES_PER_SECOND, redirect_stderr=False
        )
        # Warnings of Spark would break the display; errors that end the demo are raised.
        self.stack.enter_context(redirect_stderr(StringIO()))
        with shown if self.console.is_terminal else nullcontext(), suppress(KeyboardInterrupt):
            meter.pipeline = run = self._start_spark(screen)
            self._watch(run, screen, feed, board, meter)
        if self.options.picture:
            _save_picture(screen, self.options.picture)
        if board.first_at is not None:
            self._sum_up(feed, board)

    # Its parts, in the order in which they start

    def _start_log(self) -> None:
        if self.bootstrap:
            # A broker in use: the demo leaves its topics alone, and removes its own afterwards.
            self.pipeline = _changed(self.pipeline, prefix=f"demo-{uuid4().hex[:6]}-")
            self._say(f"the log is at {self.bootstrap}; the demo uses its own topics there")
            return
        began = time.perf_counter()
        with _blocked(signal.SIGINT):
            # Ctrl-C goes to the demo only, which then stops the broker.
            broker = self.stack.enter_context(BrokerProcess())
        self.bootstrap = broker.bootstrap
        took_ms = (time.perf_counter() - began) * 1000
        self._say(f"the log is ready in {took_ms:.0f} ms; any Kafka client can connect to {self.bootstrap}")

    def _create_topics(self) -> None:
        names = [topic.name for topic in (*self.pipeline.inputs.values(), *self.pipeline.outputs.values())]
        if self.options.bootstrap_server:
            self.stack.callback(topic_admin.delete_groups, [self.pipeline.name], self.bootstrap)
            self.stack.callback(topic_admin.delete, names, self.bootstrap)
        for name in names:
            topic_admin.ensure(name, self.bootstrap, partitions=PARTITIONS)

    def _start_streams(self) -> tuple[Feed, Board, Meter]:
        rate, seed = self.options.rate, self.options.seed
        tweets, counts = self.pipeline.inputs["tweets"].name, self.pipeline.outputs["output"].name
        feed = Feed(self.bootstrap, tweets, rate, seed, step_seconds=STEP_SECONDS)
        board = Board(
            self.bootstrap, counts, PARTITIONS, feed, window_seconds=WINDOW_SECONDS, step_seconds=STEP_SECONDS
        )
        meter = Meter(feed, board)
        for thread in (feed, board, meter):
            thread.start()
            self.stack.callback(thread.stop)
        self._say(f"writing {rate:,.0f} tweets per second, with seed {seed}")
        return feed, board, meter

    def _fetch_jars(self) -> None:
        if jars.missing_jars("spark-kafka"):
            self._say("downloading Spark's Kafka connector, once")
            with suppress(jars.JarsUnavailable):
                # The session tries again and explains the error.
                jars.spark_kafka_jars()

    def _start_spark(self, screen: Screen) -> Run:
        began = time.perf_counter()
        spark = session("millrace-demo", settings={"spark.driver.memory": "1g"})
        self.stack.callback(_end_spark, spark)
        self._say(f"Spark is ready in {time.perf_counter() - began:.1f} s")
        screen.wait_for("Spark is processing its first batch")
        checkpoints = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-demo-"))
        run = Run(self.pipeline, spark, self.bootstrap, RunOptions(checkpoints=checkpoints))
        self.stack.callback(run.stop, now=True)
        run.start()
        return run

    # While it runs, and after

    def _watch(self, run: Run, screen: Screen, feed: Feed, board: Board, meter: Meter) -> None:
        """Watch until the time is over, which counts from the first result."""
        while board.first_at is None:
            self._check(run, feed)
        began, lines = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self.options.seconds:
            self._check(run, feed)
            screen.hint = f"{self.options.seconds - passed:.0f} s left, Ctrl-C ends it"
            if not self.console.is_terminal and passed >= lines * LINE_SECONDS + 1:
                lines += 1
                print(plain(passed, board.rows(), meter.figures), flush=True)

    def _check(self, run: Run, feed: Feed) -> None:
        if run.wait(0.1):
            raise PipelineError("the query ended unexpectedly; run the demo again")
        if feed.failure:
            raise PipelineError(f"{feed.failure}; check the broker at {self.bootstrap}")

    def _sum_up(self, feed: Feed, board: Board) -> None:
        p50, p99 = (milliseconds(percentile(board.latencies_ms, percent)) for percent in (50, 99))
        self._say(f"wrote {feed.written:,} tweets, and counted {board.counted:,} hashtags in them")
        self._say(f"latency from the writing of a tweet to its count in the log: p50 {p50}, p99 {p99}")

    def _say(self, message: str) -> None:
        self.console.print(f"[green]✓[/green] {message}", highlight=False, soft_wrap=True)


def _changed(pipeline: Pipeline, *, prefix: str = "", options: Mapping[str, str] | None = None) -> Pipeline:
    """The same pipeline with a prefix to all names, or with other options of its inputs."""
    return replace(
        pipeline,
        name=prefix + pipeline.name,
        inputs={
            key: replace(topic, name=prefix + topic.name, options=options or topic.options)
            for key, topic in pipeline.inputs.items()
        },
        outputs={key: replace(topic, name=prefix + topic.name) for key, topic in pipeline.outputs.items()},
    )


def _end_spark(spark: SparkSession) -> None:
    """Stop Spark and wait until its JVM has ended."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(STOP_SECONDS)


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Block a signal permanently for the processes that start in this block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _save_picture(screen: Screen, path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor")
    screen.hint = "Ctrl-C ends it"
    console.print(screen)
    # Without the fonts that a browser would download.
    picture = re.sub(r"@font-face {.*?}", "", console.export_svg(title="make demo"), flags=re.DOTALL)
    path.write_text("".join(f"{line.rstrip()}\n" for line in picture.splitlines() if line.strip()))


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="duration (default: %(default)g)")
    parser.add_argument("--rate", type=float, default=2000, help="tweets per second (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the tweets (default: %(default)d)")
    parser.add_argument(
        "--bootstrap-server", default="", help="a running broker to use instead of starting one"
    )
    parser.add_argument("--picture", type=Path, help="file for the last frame, as SVG")
    options = parser.parse_args()
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            try:
                Demo(options, console, stack).run()
            except KeyboardInterrupt:
                console.print()
            finally:
                # An interrupt during the clean-up would leave something behind.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except PipelineError as error:
        sys.exit(str(error))
    console.print("[green]✓[/green] everything is stopped and removed; to try it yourself:")
    console.print("    millrace up")
    console.print("    millrace run examples/trending.py")
    console.print("    python -m examples.tweets | millrace console-producer --topic tweets")


if __name__ == "__main__":
    main()
