"""The program of a topology: called by Spark with each micro-batch, it updates states and writes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from millrace.pipelines.sink.exactly_once import CHECKPOINT_PROPERTY, ExactlyOnce
from millrace.pipelines.topics import encoding, reading
from millrace.trident.errors import TridentError
from millrace.trident.model import nodes
from millrace.trident.model.topology import TridentTopology
from millrace.trident.spark import native
from millrace.trident.spark.batch_plan import BatchPlan
from millrace.trident.state.map_state import MapState
from millrace.trident.state.ownership import Transaction, take_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "__source"


def read_sources(spark: SparkSession, topology: TridentTopology, bootstrap: str) -> DataFrame:
    """All sources of a topology as one stream, so that a batch has the tuples of all of them."""
    frames = [
        reading.stream(spark, source.topic, bootstrap, limit=topology.records_per_batch).select(
            *map(native.column, source.fields)
        )
        for source in topology.sources
    ]
    if len(frames) == 1:
        return frames[0]
    tagged = [
        frame.select(
            F.lit(number).alias(SOURCE), F.struct(*map(native.column, frame.columns)).alias(f"__{number}")
        )
        for number, frame in enumerate(frames)
    ]
    whole, *others = tagged
    for other in others:
        whole = whole.unionByName(other, allowMissingColumns=True)
    return whole


class BatchProgram:
    """Runs the batches of a topology, one after the other. Spark calls it in the thread of the query."""

    def __init__(self, topology: TridentTopology, name: str, bootstrap: str, *, adopt: bool = False) -> None:
        self._topology = topology
        self._bootstrap = bootstrap
        self._adopt = adopt
        self._states: dict[str, MapState] = {}
        self._queries: dict[str, int] = {}
        self._sinks = {
            id(sink): ExactlyOnce(f"{name}.{sink.topic.name}", sink.topic, bootstrap)
            for sink in topology.sinks
            if isinstance(sink, nodes.Written)
        }

    def __call__(self, frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(CHECKPOINT_PROPERTY) or ""
        try:
            self._open(query)
            self._run(frame, batch)
        except BaseException:
            # The next attempt opens the states again, with new connections.
            self.close()
            raise

    def close(self) -> None:
        """Close the states."""
        while self._states:
            self._states.popitem()[1].close()
        self._queries.clear()

    def _open(self, query: str) -> None:
        if self._states or not self._topology.states():
            return
        written = {spec.name for spec in self._topology.written_states()}
        for spec in self._topology.states():
            if spec.name in written:
                store = spec.store(self._bootstrap)
                self._queries[spec.name] = take_over(store, spec.name, spec.kind, query, adopt=self._adopt)
                store.close()
            self._states[spec.name] = spec.open(self._bootstrap, is_writer=spec.name in written)

    def _run(self, frame: DataFrame, batch: int) -> None:
        whole = frame.persist() if len(self._topology.sources) > 1 else frame
        plan = BatchPlan(
            self._source_frames(whole),
            self._topology.sinks,
            batch,
            bootstrap=self._bootstrap,
            states=self._states,
            transactions={name: Transaction(query, batch) for name, query in self._queries.items()},
        )
        try:
            for sink in self._topology.sinks:
                if isinstance(sink, nodes.Written):
                    encoded = encoding.encode(plan.frame(sink.parent), sink.topic)
                    self._sinks[id(sink)](encoded, batch)
                else:
                    plan.update(sink)
        finally:
            plan.close()
            if whole is not frame:
                whole.unpersist()

    def _source_frames(self, whole: DataFrame) -> dict[str, DataFrame]:
        sources = self._topology.sources
        if len(sources) == 1:
            return {sources[0].name: whole}
        return {
            source.name: whole.filter(F.col(SOURCE) == number).select(f"__{number}.*")
            for number, source in enumerate(sources)
        }


def check(topology: TridentTopology, master: str) -> None:
    """Refuse a topology that cannot run on a master."""
    if not topology.sources:
        raise TridentError(f"{topology.name} reads no topic; begin with new_stream")
    if not topology.sinks:
        raise TridentError(
            f"{topology.name} keeps no state and writes no topic;"
            " end a stream with persistent_aggregate or to_log"
        )
    for spec in topology.states():
        if spec.is_local and not master.startswith("local"):
            raise TridentError(
                f"the state {spec.name} is a file of this machine, and {master} may run the driver on another"
                " one; use PostgreSQL, Redis or the log for it"
            )
