"""Trident: exactly-once streams with state, on Spark's micro-batches.

    from millrace.pipelines import log
    from millrace.trident import Count, MapGet, Split, Sum, TridentTopology, state

    topology = TridentTopology("word-count")
    counts = (
        topology.new_stream("sentences", log.text("sentences"))
        .each("value", Split(), "word")
        .group_by("word")
        .persistent_aggregate(state.sqlite("counts.db", "counts"), Count(), "count")
    )

`millrace trident run FILE` runs it.
"""

from millrace.trident import state
from millrace.trident.errors import StateError, TridentError
from millrace.trident.model.stream import GroupedStream, Stream, TridentState
from millrace.trident.model.topology import TridentTopology
from millrace.trident.model.windows import Window, sliding, tumbling
from millrace.trident.operations.aggregators import (
    Aggregator,
    CombinerAggregator,
    Count,
    Max,
    Min,
    ReducerAggregator,
    Sum,
)
from millrace.trident.operations.expressions import field
from millrace.trident.operations.functions import (
    Debug,
    Equals,
    Filter,
    FilterNull,
    Function,
    Negate,
    Split,
)
from millrace.trident.operations.queries import MapGet, QueryFunction, SnapshotGet, StateUpdater
from millrace.trident.operations.tuples import Collector, TridentTuple

__all__ = [
    "Aggregator",
    "Collector",
    "CombinerAggregator",
    "Count",
    "Debug",
    "Equals",
    "Filter",
    "FilterNull",
    "Function",
    "GroupedStream",
    "MapGet",
    "Max",
    "Min",
    "Negate",
    "QueryFunction",
    "ReducerAggregator",
    "SnapshotGet",
    "Split",
    "StateError",
    "StateUpdater",
    "Stream",
    "Sum",
    "TridentError",
    "TridentState",
    "TridentTopology",
    "TridentTuple",
    "Window",
    "field",
    "sliding",
    "state",
    "tumbling",
]
