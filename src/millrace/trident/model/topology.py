"""A Trident topology: its streams, and what they write."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from millrace.pipelines.topics.declaration import LogTopic
from millrace.trident.errors import TridentError
from millrace.trident.model import nodes
from millrace.trident.model.fields import Names, names_of
from millrace.trident.model.stream import Stream
from millrace.trident.state.declaration import StateSpec

if TYPE_CHECKING:
    from millrace.drpc.linear import LinearDRPC

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")
JoinKind = Literal["inner", "outer"]


class TridentTopology:
    """Streams over the log, and the states that they keep::

    topology = TridentTopology("word-count")
    counts = (
        topology.new_stream("sentences", log.text("sentences"))
        .each("value", Split(), "word")
        .group_by("word")
        .persistent_aggregate(state.sqlite("counts.db", "counts"), Count(), "count")
    )
    """

    def __init__(
        self, name: str, *, trigger: str | None = None, records_per_batch: int | None = None
    ) -> None:
        """`trigger`: the interval between batches; `records_per_batch`: the most that a batch reads."""
        if not _LEGAL_NAME.fullmatch(name):
            raise TridentError(f"a topology cannot be called {name!r}; use letters, digits, '.', '_' and '-'")
        self.name = name
        self.trigger = trigger
        self.records_per_batch = records_per_batch
        self.sources: list[nodes.Source] = []
        self.sinks: list[nodes.Child] = []
        self.requests: list[nodes.Request] = []
        self.nodes: list[nodes.Node] = []
        """All nodes, in the order of their declaration."""

    def new_stream(self, name: str, topic: LogTopic) -> Stream:
        """A stream of the records of a topic. Its fields are the columns that the topic declares."""
        if not isinstance(topic, LogTopic):
            raise TridentError(f"{name} reads {topic!r}; declare a topic, as in log.text('sentences')")
        if any(source.name == name for source in self.sources):
            raise TridentError(f"there are two streams called {name!r}; rename one")
        if topic.table:
            raise TridentError(f"{topic.name} is a table; a stream reads a topic, as in log.json")
        source = nodes.Source(_columns(topic), name, topic)
        self.sources.append(source)
        return Stream(self, source)

    def merge(self, *streams: Stream) -> Stream:
        """The tuples of several streams, under the fields of the first."""
        if len(streams) < 2:
            raise TridentError("merge takes two streams or more")
        widths = {len(stream.fields) for stream in streams}
        if len(widths) > 1:
            shown = "; ".join(", ".join(stream.fields) for stream in streams)
            raise TridentError(f"merged streams have the same number of fields, and these have {shown}")
        return Stream(self, nodes.Merged(streams[0].fields, tuple(stream.node for stream in streams)))

    def join(
        self,
        streams: Sequence[Stream],
        keys: Sequence[Names],
        outputs: Names,
        kind: JoinKind | Sequence[JoinKind] = "inner",
    ) -> Stream:
        """Join streams within each batch. The outputs are the keys, then the other fields in order.

        `kind` is one for all streams or one for each. A tuple of an outer stream may be missing.
        """
        if len(streams) < 2 or len(keys) != len(streams):
            raise TridentError("join takes two streams or more, and the key fields of each")
        kinds = [kind] * len(streams) if isinstance(kind, str) else list(kind)
        if len(kinds) != len(streams) or set(kinds) - {"inner", "outer"}:
            raise TridentError(f"{kind!r}: a join is 'inner' or 'outer', for all streams or for each")
        by = tuple(stream._known(fields) for stream, fields in zip(streams, keys, strict=True))
        if len({len(fields) for fields in by}) > 1:
            raise TridentError("the streams of a join need the same number of key fields")
        names = names_of(outputs)
        rest = sum(len(stream.fields) - len(by[0]) for stream in streams)
        if len(names) != len(by[0]) + rest or len(set(names)) < len(names):
            raise TridentError(
                f"this join has {len(by[0])} key fields and {rest} others; name {len(by[0]) + rest} different"
                f" outputs, not {', '.join(names)}"
            )
        outer = tuple(one == "outer" for one in kinds)
        return Stream(self, nodes.Joined(names, tuple(stream.node for stream in streams), by, outer))

    def new_drpc_stream(self, function: str) -> Stream:
        """A stream of the calls of a DRPC function. Its only field is `args`."""
        if any(request.function == function for request in self.requests):
            raise TridentError(f"there are two streams for the function {function!r}; rename one")
        if not _LEGAL_NAME.fullmatch(function):
            raise TridentError(
                f"a function cannot be called {function!r}; use letters, digits, '.', '_' and '-'"
            )
        request = nodes.Request(("args",), function)
        self.requests.append(request)
        return Stream(self, request)

    def add_sink(self, node: nodes.Child) -> None:
        """Add a node that has an effect outside of the topology."""
        if any(isinstance(found, nodes.Request) for found in ancestors(node)):
            raise TridentError(
                "a DRPC stream only queries: it cannot write to a state or a topic; write from a stream"
            )
        if isinstance(node, (nodes.Persisted, nodes.Updated)):
            self._check_state(node.state)
        self.sinks.append(node)

    def results(self, request: nodes.Request) -> nodes.Node:
        """The last node of a DRPC stream: its tuples are the results of a call."""
        followers = [node for node in self.nodes if request in ancestors(node)]
        used = {id(parent) for node in self.nodes for parent in node.parents}
        ends = [node for node in followers if id(node) not in used]
        if len(ends) != 1:
            raise TridentError(
                f"the DRPC stream {request.function} has {len(ends)} ends; one of them must be the result:"
                " merge or join them"
            )
        return ends[0]

    def drpc_topology(self) -> type[LinearDRPC]:
        """The functions of this topology's DRPC streams, as a topology for `millrace topology submit`.

        Assign it to a name of the module: `Queries = topology.drpc_topology()`.
        """
        from millrace.trident.queries import drpc_topology

        # The file that calls this must own the class, so that it is found there.
        return drpc_topology(self, sys._getframe(1).f_globals["__name__"])

    def states(self) -> list[StateSpec]:
        """The states that streams over the log use."""
        found: dict[str, StateSpec] = {}
        for sink in self.sinks:
            for node in ancestors(sink):
                if isinstance(node, (nodes.Persisted, nodes.Updated, nodes.Queried, nodes.Windowed)):
                    found[node.state.name] = node.state
        return list(found.values())

    def written_states(self) -> list[StateSpec]:
        """The states that streams over the log update."""
        found = [node for sink in self.sinks for node in ancestors(sink)]
        kinds = (nodes.Persisted, nodes.Updated, nodes.Windowed)
        return list({node.state.name: node.state for node in found if isinstance(node, kinds)}.values())

    def _check_state(self, state: StateSpec) -> None:
        for sink in self.sinks:
            if isinstance(sink, (nodes.Persisted, nodes.Updated)) and sink.state.name == state.name:
                raise TridentError(
                    f"two streams update the state {state.name}, and a row has one update per batch;"
                    " use two states"
                )


def ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    """A node and all before it."""
    yield node
    for parent in node.parents:
        yield from ancestors(parent)


def _columns(topic: LogTopic) -> tuple[str, ...]:
    """The columns of a topic, as Spark will read it."""
    if topic.format != "json":
        return ("value", *topic.metadata)
    if topic.schema is None:
        raise TridentError(f'{topic.name} is read, and needs a schema: log.json("{topic.name}", "a string")')
    return (*_schema_names(topic.schema), *topic.metadata)


def _schema_names(schema: str) -> Iterator[str]:
    """The names of the columns of a schema in Spark's syntax."""
    depth, column = 0, ""
    for character in f"{schema},":
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            if found := re.match(r"\s*(?:`([^`]+)`|(\w+))", column):
                yield found[1] or found[2]
            column = ""
        else:
            column += character
