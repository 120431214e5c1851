"""Hello, topology: a spout emits numbers, a bolt doubles them, the log keeps them.

millrace topology run examples/topologies/hello.py --no-spark
millrace console-consumer --topic doubled --from-beginning
"""

import time
from typing import Any

from millrace.topologies import Bolt, LogBolt, Spout, TaskContext, Topology, Tuple


class Numbers(Spout):
    """Emits the next number every tenth of a second, and emits it again if it fails."""

    outputs = ["number"]

    def open(self, conf: dict[str, Any], context: TaskContext) -> None:
        self._number = 0
        self._next = 0.0

    def next_tuple(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            self._number += 1
            self.emit([self._number], tup_id=self._number)

    def fail(self, tup_id: int) -> None:
        self.emit([tup_id], tup_id=tup_id)


class Double(Bolt):
    outputs = ["number", "doubled"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup["number"], 2 * tup["number"]])


class Hello(Topology):
    numbers = Numbers.spec()
    double = Double.spec(inputs=[numbers], par=2)
    out = LogBolt.spec("doubled", inputs=[double], key="number")
