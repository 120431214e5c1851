"""Both brokers in one run: the same loads in alternating rounds, one broker under load at a time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.brokers import APACHE_KAFKA, MILLRACE, StartBroker
from benchmarks.figures import Figures
from benchmarks.machine.memory import full_page_cache
from benchmarks.machine.usage import resident_bytes
from benchmarks.target import Target
from benchmarks.workloads import MEMORY_BARS, READY, READY_BARS, Suite, Workload

IDLE_SECONDS = 3
# The JVM still compiles during the first rounds.
WARM_UP_ROUNDS = 2

Announce = Callable[[str], None]


class Comparison:
    """One benchmark run over some of a suite's workloads, on millrace, a peer or both."""

    def __init__(
        self,
        suite: Suite,
        names: Sequence[str],
        brokers: Mapping[str, StartBroker],
        *,
        rounds: int,
        quick: bool,
        announce: Announce,
    ) -> None:
        self.figures = Figures(next((name for name in brokers if name != MILLRACE), APACHE_KAFKA))
        self._suite = suite
        self._names = names
        self._brokers = brokers
        self._rounds = rounds
        self._quick = quick
        self._announce = announce

    def run(self) -> Figures:
        if READY in self._names:
            self._measure_start()
        chosen = [workload for workload in self._suite.workloads if workload.name in self._names]
        if not chosen:
            return self.figures
        self._announce("filling the page cache")
        with full_page_cache() as fill_up, self._running() as targets:
            if self._suite.starts_and_memory:
                time.sleep(IDLE_SECONDS)
                self._record_memory(targets, "idle, MB")
            for workload in chosen:
                self._compare(workload, targets, fill_up)
            if self._suite.starts_and_memory:
                self._record_memory(targets, "after the load, MB")
        return self.figures

    def _measure_start(self) -> None:
        for number in range(self._rounds):
            for name, start in self._brokers.items():
                self._announce(f"{name}: start {number + 1} of {self._rounds}")
                with start(self._suite.properties) as broker:
                    for unit, bar in READY_BARS.items():
                        self.figures.add("start", unit, name, broker.ready_seconds, bar)

    def _compare(self, workload: Workload, targets: dict[str, Target], fill_up: Callable[[], None]) -> None:
        topic = f"benchmark-{workload.name}"
        if workload.prefilled:
            for name, target in targets.items():
                self._announce(f"{name}: filling the topic for {workload.name}")
                self._fill(target, topic, workload)
        for number in range(1 - WARM_UP_ROUNDS, self._rounds + 1):
            label = f"round {number} of {self._rounds}" if number > 0 else "warming up"
            # The order alternates: what a load leaves in the machine's caches helps the next broker.
            for name, target in sorted(targets.items(), reverse=bool(number % 2)):
                self._announce(f"{name}: {workload.name}, {label}")
                if workload.takes_pages:
                    # Some machines drop pages that were not read for a minute.
                    fill_up()
                with ExitStack() as others:
                    for other in targets.values():
                        if other is not target:
                            others.enter_context(other.paused())
                    figures = self._round(target, topic, workload)
                if number > 0:
                    for unit, bar in workload.bars.items():
                        self.figures.add(workload.title, unit, name, figures[unit], bar)
        if workload.prefilled:
            for target in targets.values():
                target.delete_topic(topic)

    def _fill(self, target: Target, topic: str, workload: Workload) -> None:
        target.create_topic(topic, workload.partitions)
        # Both brokers hold the same records, so that fetches return the same amounts.
        size = workload.sized(quick=self._quick)
        parameters = {"topic": topic, "records": size["records"], "record_bytes": size["record_bytes"]}
        run_load("fill", target, parameters)

    def _round(self, target: Target, topic: str, workload: Workload) -> dict[str, float]:
        # Dirty pages of earlier rounds would otherwise be written during this one.
        os.sync()
        if not workload.prefilled:
            target.create_topic(topic, workload.partitions)
        figures = run_load(workload.load, target, {"topic": topic, **workload.sized(quick=self._quick)})
        if not workload.prefilled:
            target.delete_topic(topic)
        return figures

    def _record_memory(self, targets: dict[str, Target], unit: str) -> None:
        for name, target in targets.items():
            megabytes = resident_bytes(target.pid) / 1e6
            self.figures.add("resident memory", unit, name, megabytes, MEMORY_BARS[unit])

    @contextmanager
    def _running(self) -> Iterator[dict[str, Target]]:
        with ExitStack() as stack:
            targets = {}
            for name, start in self._brokers.items():
                self._announce(f"starting {name}")
                broker = stack.enter_context(start(self._suite.properties))
                targets[name] = Target(broker.bootstrap, broker.pid)
            yield targets


def run_load(name: str, target: Target, parameters: dict[str, object]) -> dict[str, float]:
    """Run a load in a process of its own and return its figures."""
    request = json.dumps({"bootstrap": target.bootstrap, "pid": target.pid, "parameters": parameters})
    command = [sys.executable, "-m", "benchmarks.loads", name, request]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
