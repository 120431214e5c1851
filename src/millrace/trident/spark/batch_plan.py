"""The plan of one batch: the nodes of a topology as DataFrames over the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from millrace.trident.errors import TridentError
from millrace.trident.model import nodes
from millrace.trident.model.engines import choose, is_native_aggregator
from millrace.trident.model.fields import Output, require_types
from millrace.trident.model.topology import ancestors
from millrace.trident.operations.aggregators import CombinerAggregator, ReducerAggregator
from millrace.trident.operations.expressions import Expression
from millrace.trident.operations.functions import Filter, Split
from millrace.trident.spark import native
from millrace.trident.spark.aggregate_steps import PARTIAL, AggregateStep, CombineStep, PartialStep
from millrace.trident.spark.rows import IS_TUPLE
from millrace.trident.spark.state_steps import (
    CombinerUpdate,
    QueryStep,
    ReducerUpdate,
    StateStep,
    UpdaterStep,
)
from millrace.trident.spark.tuple_steps import FilterStep, FunctionStep, PeekStep
from millrace.trident.spark.window_step import WindowStep
from millrace.trident.state.map_state import MapState
from millrace.trident.state.ownership import Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Step = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class BatchPlan:
    """DataFrames of the nodes in one batch. A node that several others read is computed once."""

    def __init__(
        self,
        sources: Mapping[str, DataFrame],
        ends: Sequence[nodes.Node],
        batch: int,
        *,
        bootstrap: str = "",
        states: Mapping[str, MapState] | None = None,
        transactions: Mapping[str, Transaction] | None = None,
    ) -> None:
        """`states`: those that the driver has open, by name; `transactions`: of each state, this batch's."""
        self._sources = sources
        self._batch = batch
        self._bootstrap = bootstrap
        self._states = states or {}
        self._transactions = transactions or {}
        self._frames: dict[int, DataFrame] = {}
        self._kept: list[DataFrame] = []
        reached = {id(node): node for end in ends for node in ancestors(end)}
        self._readers = Counter(id(parent) for node in reached.values() for parent in node.parents)
        self._readers.update(id(end) for end in ends if not isinstance(end, nodes.Written))

    def frame(self, node: nodes.Node) -> DataFrame:
        """The tuples of a node."""
        if id(node) not in self._frames:
            frame = self._planned(node).select(*map(native.column, node.fields))
            is_update = isinstance(node, (nodes.Persisted, nodes.Updated, nodes.Windowed))
            if self._readers[id(node)] > 1 or (is_update and choose(node).engine != "driver"):
                frame = frame.persist()
                self._kept.append(frame)
            self._frames[id(node)] = frame
        return self._frames[id(node)]

    def update(self, node: nodes.Node) -> None:
        """Run the update of a state."""
        if self._readers[id(node)] > 1 or choose(node).engine != "driver":
            frame = self.frame(node)
            if choose(node).engine != "driver":
                frame.count()
        elif isinstance(node, (nodes.Persisted, nodes.Updated)) and id(node) not in self._frames:
            # Nothing reads the new values: they need not go back to Spark.
            for _ in self._in_driver(*self._state_step(node)[:2]):
                pass

    def close(self) -> None:
        """Free what the batch has kept."""
        for frame in self._kept:
            frame.unpersist()

    # Nodes

    def _planned(self, node: nodes.Node) -> DataFrame:
        match node:
            case nodes.Source():
                return self._sources[node.name]
            case nodes.Each():
                return self._each(node)
            case nodes.Keep():
                return self._keep(node)
            case nodes.Peek():
                frame = self.frame(node.parent)
                return in_tasks(frame, PeekStep(node.fields, node.action), frame.schema)
            case nodes.Project() | nodes.Written():
                return self.frame(node.parent)
            case nodes.Repartition():
                return self._repartition(node)
            case nodes.Aggregated():
                return self._aggregated(node)
            case nodes.Top():
                return self._top(node)
            case nodes.Merged():
                return self._merged(node)
            case nodes.Joined():
                return self._joined(node)
            case nodes.Windowed() | nodes.Queried() | nodes.Persisted() | nodes.Updated():
                return self._with_state(node)
        raise TridentError(
            "a DRPC stream and a stream over the log have separate batches; query a state instead"
        )

    def _each(self, node: nodes.Each) -> DataFrame:
        frame = self.frame(node.parent)
        if choose(node).engine == "native":
            [output] = node.outputs
            made = native.function(node)
            if output.type is not None and not isinstance(node.function, Split):
                made = made.cast(output.type)
            kept = [] if node.replaces else [native.column(name) for name in node.parent.fields]
            return frame.select(*kept, made.alias(output.name))
        made_fields = _declared(node.outputs)
        schema = StructType(made_fields if node.replaces else [*frame.schema.fields, *made_fields])
        names = [output.name for output in node.outputs]
        step = FunctionStep(
            node.inputs, node.function, names, arrow_schema(schema), node.replaces, node.is_flat
        )
        return in_tasks(frame, step, schema)

    def _keep(self, node: nodes.Keep) -> DataFrame:
        frame = self.frame(node.parent)
        if choose(node).engine == "native":
            assert isinstance(node.filter, (Filter, Expression))
            return frame.filter(native.condition(node.filter, node.inputs))
        return in_tasks(frame, FilterStep(node.inputs, node.filter), frame.schema)

    def _repartition(self, node: nodes.Repartition) -> DataFrame:
        frame = self.frame(node.parent)
        tasks = self._tasks(frame)
        match node.how:
            case "by":
                return frame.repartition(tasks, *map(native.column, node.by))
            case "global":
                return frame.repartition(1)
            case "broadcast":
                copies = frame.withColumn("__task", F.explode(F.sequence(F.lit(0), F.lit(tasks - 1))))
                return copies.repartitionById(tasks, F.col("__task"))
        return frame.repartition(tasks)

    def _top(self, node: nodes.Top) -> DataFrame:
        column = native.column(node.by)
        ordered = self.frame(node.parent).filter(column.isNotNull())
        return ordered.orderBy(column.desc() if node.descending else column.asc()).limit(node.count)

    def _merged(self, node: nodes.Merged) -> DataFrame:
        first, *others = (self.frame(stream) for stream in node.streams)
        for stream, other in zip(node.streams[1:], others, strict=True):
            for field, its in zip(first.schema, other.schema, strict=True):
                if field.dataType != its.dataType:
                    raise TridentError(
                        f"merged streams have the same types, but {field.name} is"
                        f" {field.dataType.simpleString()} and {its.name} is {its.dataType.simpleString()};"
                        " convert one with map"
                    )
            first = first.union(other.select(*map(native.column, stream.fields)))
        return first.toDF(*node.fields)

    def _joined(self, node: nodes.Joined) -> DataFrame:
        width = len(node.keys[0])
        names = [f"__key_{number}" for number in range(width)]
        outputs = iter(node.fields[width:])
        joined: DataFrame | None = None
        is_required = False
        for stream, keys, is_outer in zip(node.streams, node.keys, node.outer, strict=True):
            others = [(name, next(outputs)) for name in stream.fields if name not in keys]
            frame = self.frame(stream).select(
                *(native.column(key).alias(name) for key, name in zip(keys, names, strict=True)),
                *(native.column(name).alias(output) for name, output in others),
            )
            if joined is None:
                joined, is_required = frame, not is_outer
                continue
            kind = {(True, True): "inner", (True, False): "left", (False, True): "right"}.get(
                (is_required, not is_outer), "full"
            )
            joined = _null_safe_join(joined, frame, names, kind)
            is_required = is_required or not is_outer
        assert joined is not None
        renamed = [F.col(name).alias(field) for name, field in zip(names, node.fields, strict=False)]
        return joined.select(*renamed, *map(native.column, node.fields[width:]))

    # Aggregates

    def _aggregated(self, node: nodes.Aggregated) -> DataFrame:
        frame = self.frame(node.parent)
        groups = [native.column(name) for name in node.groups]
        if choose(node).engine == "native":
            return frame.groupBy(*groups).agg(
                *(
                    native.aggregate(aggregate.aggregator, aggregate.inputs).alias(aggregate.outputs[0].name)
                    for aggregate in node.aggregates
                )
            )
        keys = [frame.schema[name] for name in node.groups]
        made = [field for aggregate in node.aggregates for field in self._aggregate_fields(frame, aggregate)]
        schema = StructType([*keys, *made])
        step = AggregateStep(node.groups, node.aggregates, arrow_schema(schema), self._batch)
        if node.scope == "partition":
            return in_tasks(frame, step, schema)
        if all(isinstance(aggregate.aggregator, CombinerAggregator) for aggregate in node.aggregates):
            return self._combined(frame, node, keys, schema)
        return in_tasks(self._together(frame, node.groups), step, schema)

    def _combined(
        self, frame: DataFrame, node: nodes.Aggregated, keys: list[StructField], schema: StructType
    ) -> DataFrame:
        """Combine in each task before the tuples move, and after."""
        numbers = range(len(node.aggregates))
        partial = StructType([*keys, *(StructField(PARTIAL.format(n), BinaryType()) for n in numbers)])
        before = PartialStep(node.groups, node.aggregates, arrow_schema(partial))
        after = CombineStep(node.groups, node.aggregates, arrow_schema(schema))
        moved = self._together(in_tasks(frame, before, partial), node.groups)
        return in_tasks(moved, after, schema)

    def _together(self, frame: DataFrame, groups: Sequence[str]) -> DataFrame:
        """The tuples of a group in one task."""
        if not groups:
            # Spark runs no task for an empty frame, but no tuples have an aggregate too.
            empty = frame.sparkSession.createDataFrame([(False,)], f"{IS_TUPLE} boolean")
            marked = frame.withColumn(IS_TUPLE, F.lit(True))
            return marked.unionByName(empty, allowMissingColumns=True).repartition(1)
        return frame.repartition(self._tasks(frame), *map(native.column, groups))

    def _aggregate_fields(self, frame: DataFrame, aggregate: nodes.Aggregate) -> list[StructField]:
        if not is_native_aggregator(aggregate.aggregator):
            return _declared(aggregate.outputs)
        column = native.aggregate(aggregate.aggregator, aggregate.inputs).alias(aggregate.outputs[0].name)
        [field] = frame.groupBy().agg(column).schema.fields
        return [StructField(field.name, field.dataType)]

    # State

    def _with_state(
        self, node: nodes.Windowed | nodes.Queried | nodes.Persisted | nodes.Updated
    ) -> DataFrame:
        frame, step, schema = self._state_step(node)
        if choose(node).engine != "driver":
            return in_tasks(frame, step, schema)
        import pyarrow as pa

        made = pa.Table.from_batches(self._in_driver(frame, step), schema=arrow_schema(schema))
        # One partition, always: the exactly-once sink needs as many tasks when a batch comes again.
        return frame.sparkSession.createDataFrame(made, schema).coalesce(1)

    def _in_driver(self, frame: DataFrame, step: StateStep) -> Iterator[pa.RecordBatch]:
        state = self._states.get(step.spec.name)
        if state is None:
            raise TridentError(f"the state {step.spec.name} is not open; run the topology as a whole")
        return step.run(state, frame.toArrow().to_batches())

    def _state_step(
        self, node: nodes.Windowed | nodes.Queried | nodes.Persisted | nodes.Updated
    ) -> tuple[DataFrame, StateStep, StructType]:
        frame = self.frame(node.parent)
        transaction = self._transactions.get(node.state.name)

        def base(schema: StructType) -> dict[str, Any]:
            return {
                "spec": node.state,
                "bootstrap": self._bootstrap,
                "transaction": transaction,
                "schema": arrow_schema(schema),
            }

        match node:
            case nodes.Windowed(window=window, aggregate=aggregate):
                schema = StructType(self._aggregate_fields(frame, aggregate))
                return frame, WindowStep(**base(schema), window=window, aggregate=aggregate), schema
            case nodes.Queried(inputs=inputs, function=function, outputs=outputs):
                require_types(outputs, function)
                schema = StructType([*frame.schema.fields, *_declared(outputs)])
                names = [output.name for output in outputs]
                return (
                    frame,
                    QueryStep(**base(schema), inputs=inputs, function=function, outputs=names),
                    schema,
                )
            case nodes.Updated(inputs=inputs, updater=updater, outputs=outputs):
                schema = StructType(_declared(outputs))
                return frame, UpdaterStep(**base(schema), inputs=inputs, updater=updater), schema
            case nodes.Persisted():
                return self._persisted(node, frame, base)

    def _persisted(
        self, node: nodes.Persisted, frame: DataFrame, base: Callable[[StructType], dict[str, Any]]
    ) -> tuple[DataFrame, StateStep, StructType]:
        aggregate = nodes.Aggregate(node.inputs, node.aggregator, node.outputs)
        if isinstance(node.aggregator, ReducerAggregator):
            keys = [frame.schema[name] for name in node.groups]
            schema = StructType([*keys, *_declared(node.outputs)])
            moved = self._together(frame, node.groups)
            step: StateStep = ReducerUpdate(
                **base(schema), groups=node.groups, inputs=node.inputs, aggregator=node.aggregator
            )
            return moved, step, schema
        batch = self.frame(nodes.Aggregated(node.fields, node.parent, node.groups, (aggregate,)))
        [output] = node.outputs
        step = CombinerUpdate(
            **base(batch.schema), groups=node.groups, aggregator=node.aggregator, value=output.name
        )
        return batch, step, batch.schema

    def _tasks(self, frame: DataFrame) -> int:
        return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _declared(outputs: Sequence[Output]) -> list[StructField]:
    fields = []
    for output in outputs:
        try:
            fields.append(StructField(output.name, DataType.fromDDL(output.type or "string")))
        except Exception as error:
            raise TridentError(
                f"the field {output.name} is declared as {output.type!r}, which is no type of Spark;"
                " write 'bigint', 'string', 'double', 'array<string>'"
            ) from error
    return fields


def _null_safe_join(left: DataFrame, right: DataFrame, keys: Sequence[str], kind: str) -> DataFrame:
    """Join two frames whose key columns have the same names; missing keys are equal."""
    other = right.withColumnsRenamed({key: f"{key}_right" for key in keys}).withColumn("__right", F.lit(True))
    mine = left.withColumn("__left", F.lit(True))
    condition = [F.col(key).eqNullSafe(F.col(f"{key}_right")) for key in keys]
    joined = mine.join(other, condition, kind)
    chosen = [F.when(F.col("__left"), F.col(key)).otherwise(F.col(f"{key}_right")).alias(key) for key in keys]
    rest = [native.column(name) for name in [*left.columns, *right.columns] if name not in keys]
    return joined.select(*chosen, *rest)


def in_tasks(frame: DataFrame, step: Step, schema: StructType) -> DataFrame:
    """Run a step in Spark's tasks."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return step(batches)

    return frame.mapInArrow(run, schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a frame as Arrow has them in tasks."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.schema(
        [pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC")) for field in schema.fields]
    )
