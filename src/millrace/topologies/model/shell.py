"""Components in other languages: programs that speak Storm's multilang protocol."""

from __future__ import annotations

from typing import Any

from millrace.topologies.model.bolts import Bolt
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.spouts import Spout
from millrace.topologies.model.tuples import Tuple


class ShellBolt(Bolt):
    """A bolt that is a program: `ShellBolt.spec("node", "split.js", inputs=[lines], outputs=["word"])`.

    Each task is a process of its own, which runs in the directory of the topology's file. It has at most
    `topology.shellbolt.max.pending` tuples at a time, and acks or fails each of them. It may take as long as
    it needs: no heartbeat is asked for.
    """

    auto_anchor = False
    auto_ack = False
    auto_fail = False

    def __init__(self, *command: str) -> None:
        self.command = command

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        _check_command(spec, label)

    def process(self, tup: Tuple) -> Any:
        """The runtime hands the tuple to the program."""


class ShellSpout(Spout):
    """A spout that is a program: `ShellSpout.spec("node", "numbers.js", outputs=["number"])`."""

    def __init__(self, *command: str) -> None:
        self.command = command

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        _check_command(spec, label)

    def next_tuple(self) -> None:
        """The runtime asks the program."""


def _check_command(spec: ComponentSpec, label: str) -> None:
    if not spec.arguments or not all(isinstance(word, str) for word in spec.arguments):
        kind = spec.component.__name__
        raise TopologyError(f"{label} needs the program to run: {kind}.spec('node', 'split.js', ...)")
