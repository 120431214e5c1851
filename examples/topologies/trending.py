"""Trending words: the ten most frequent words of the last minute, every five seconds.

Counts are kept in slots of five seconds. At each tick a counting task emits its own ten best, and the ranking
task merges them; a word is always counted by the same task, so the ten best overall are among those.

millrace topics --create --topic posts --partitions 4
python -m examples.tweets | millrace console-producer --topic posts
millrace topology run examples/topologies/trending.py --workers 2
millrace console-consumer --topic trending
"""

import heapq
import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, TaskContext, Topology, Tuple

SLOT_SECONDS = 5
SLOTS = 12
TOP = 10
WORD = re.compile(r"\w{3,}")


def best(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The highest counts; words with the same count in the order of the alphabet."""
    return heapq.nsmallest(TOP, counts, key=lambda entry: (-entry[1], entry[0]))


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in WORD.findall(tup["value"].lower()):
            self.emit([word])


class RollingCount(Bolt):
    """Counts words over the last slots, of which a tick begins a new one."""

    outputs = ["task", "top"]
    config = {"topology.tick.tuple.freq.secs": SLOT_SECONDS}

    def prepare(self, conf: dict[str, Any], context: TaskContext) -> None:
        self._slots: deque[Counter[str]] = deque([Counter()], maxlen=SLOTS)

    def process(self, tup: Tuple) -> None:
        self._slots[-1][tup["word"]] += 1

    def process_tick(self, tup: Tuple) -> None:
        total: Counter[str] = Counter()
        for slot in self._slots:
            total.update(slot)
        self.emit([self.context.task, best(total.items())])
        self._slots.append(Counter())


class Rank(Bolt):
    """Merges the rankings of all counting tasks."""

    outputs = ["top"]
    config = {"topology.tick.tuple.freq.secs": SLOT_SECONDS}

    def prepare(self, conf: dict[str, Any], context: TaskContext) -> None:
        self._tops: dict[int, list[tuple[str, int]]] = {}

    def process(self, tup: Tuple) -> None:
        self._tops[tup["task"]] = tup["top"]

    def process_tick(self, tup: Tuple) -> None:
        ranking = best((word, count) for top in self._tops.values() for word, count in top)
        self.emit([[{"word": word, "count": count} for word, count in ranking]])


class Trending(Topology):
    posts = LogSpout.spec("posts", start="latest")
    split = Split.spec(inputs=[posts], par=2)
    count = RollingCount.spec(inputs={split: Grouping.fields("word")}, par=4)
    rank = Rank.spec(inputs={count: Grouping.GLOBAL})
    out = LogBolt.spec("trending", inputs=[rank])
