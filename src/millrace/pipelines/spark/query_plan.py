"""Spark's analyzed plan of a DataFrame: its operators, its sources and its state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millrace.pipelines.spark.gateway import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Node = Any
"""A node of a plan, or an expression: an object in the JVM."""


@dataclass(frozen=True, slots=True)
class Stateful:
    """An operator that keeps state between batches, and the facts that decide if the state can be reused."""

    operator: str
    keys: tuple[str, ...]
    state: tuple[str, ...]

    def __str__(self) -> str:
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        state = f" of {', '.join(self.state)}" if self.state else ""
        return f"{self.operator}{keys}{state}"


class Plan:
    """The analyzed plan of a DataFrame: as the user wrote it, with every name resolved.

    Calls into the JVM are slow, so the plan is walked once.
    """

    def __init__(self, frame: DataFrame) -> None:
        self.root: Node = frame._jdf.queryExecution().analyzed()
        self.nodes = list(nodes(self.root))
        self.kinds = [kind(node) for node in self.nodes]
        self.streaming = [bool(node.isStreaming()) for node in self.nodes]
        self._patterns: Any = jvm(frame.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern

    def streams(self) -> Iterator[tuple[str, Node]]:
        """Yield the streaming nodes with their kinds, parents before children."""
        for name, node, is_streaming in zip(self.kinds, self.nodes, self.streaming, strict=True):
            if is_streaming:
                yield name, node

    @cached_property
    def has_python(self) -> bool:
        """Whether the plan contains a Python function."""
        if self.root.containsPattern(self._patterns.PYTHON_UDF()):
            return True
        return any(re.search("Python|Pandas|Arrow|PySpark|InBatches", name) for name in self.kinds)

    @cached_property
    def sources(self) -> list[str]:
        """The topics or patterns that the streams read, in the order of the offsets in Spark's checkpoint."""
        found = []
        for name, node in self.streams():
            if name == "StreamingRelationV2":
                options = node.extraOptions()
                topic = options.get("subscribe") or options.get("subscribePattern") or options.get("assign")
                found.append(str(topic or node.sourceName()))
        return found

    @cached_property
    def stateful(self) -> list[Stateful]:
        """The stateful operators, nearest to the output first."""
        return [found for name, node in self.streams() if (found := _stateful(name, node)) is not None]

    @property
    def aggregates(self) -> bool:
        """Whether a stream is aggregated, so that results change as records arrive."""
        return any(name == "Aggregate" for name, _ in self.streams())

    @cached_property
    def has_sessions(self) -> bool:
        """Whether a stream is aggregated by session windows, which emit final results only."""
        return any(
            kind(key) == "AttributeReference" and key.metadata().contains("spark.sessionWindow")
            for name, node in self.streams()
            if name == "Aggregate"
            for key in items(node.groupingExpressions())
        )


def stateful(frame: DataFrame) -> list[Stateful]:
    """The stateful operators of a DataFrame's plan, nearest to the output first."""
    return Plan(frame).stateful


def nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan, parents before children."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def kind(node: Node) -> str:
    """The name of a node's class."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _stateful(name: str, node: Node) -> Stateful | None:
    match name:
        case "Join":
            return _join(node) if all(child.isStreaming() for child in items(node.children())) else None
        case "Aggregate":
            return Stateful(
                "aggregation",
                tuple(_key(node, key) for key in items(node.groupingExpressions())),
                tuple(_functions(node)),
            )
        case "Distinct":
            return Stateful("deduplication", tuple(_column(column) for column in items(node.output())), ())
        case "Deduplicate":
            return Stateful("deduplication", tuple(sorted(_column(key) for key in items(node.keys()))), ())
        case "DeduplicateWithinWatermark":
            keys = tuple(sorted(_column(key) for key in items(node.keys())))
            return Stateful("deduplication within the watermark", keys, ())
        case "FlatMapGroupsInPandasWithState":
            keys = tuple(_column(key) for key in items(node.groupingAttributes()))
            return Stateful("stateful function", keys, (_type(node.stateType()),))
        case "TransformWithStateInPySpark" | "TransformWithStateInPandas":
            # Only the function knows its state variables; Spark itself compares them.
            keys = tuple(_column(key) for key in items(node.leftAttributes()))
            return Stateful("stateful processor", keys, ())
        case "GlobalLimit":
            return Stateful("limit", (), (str(node.limitExpr().sql()),))
    return None


def _join(node: Node) -> Stateful:
    left, right = items(node.children())
    condition = node.condition()
    on = (_words(condition.get().sql()),) if condition.isDefined() else ()
    sides = tuple(
        f"{side} side ({', '.join(sorted(_column(column) for column in items(child.output())))})"
        for side, child in (("left", left), ("right", right))
    )
    return Stateful(f"{str(node.joinType().sql()).lower()} join of streams", on, sides)


def _functions(aggregate: Node) -> Iterator[str]:
    """The aggregate functions of an aggregation, each once, without what is computed from their results."""
    seen = set()
    for expression in items(aggregate.aggregateExpressions()):
        for part in _parts(expression):
            if kind(part) == "AggregateExpression":
                if (function := _function(part)) not in seen:
                    seen.add(function)
                    yield function
            elif "PythonUDF" in kind(part) or kind(part) == "PythonUDAF":
                yield _function(part)


def _function(expression: Node) -> str:
    return f"{_words(expression.sql())} {_type(expression.dataType())}"


def _parts(expression: Node) -> Iterator[Node]:
    """An expression and its children, down to aggregate functions."""
    yield expression
    if kind(expression) != "AggregateExpression":
        for child in items(expression.children()):
            yield from _parts(child)


def _key(aggregate: Node, expression: Node) -> str:
    """A key of an aggregation. A time window includes its length, because state depends on it."""
    if kind(expression) != "AttributeReference":
        return _function(expression)
    if not expression.metadata().contains("spark.timeWindow"):
        return _column(expression)
    return f"window {_window(aggregate, expression)}".rstrip()


def _window(aggregate: Node, attribute: Node) -> str:
    """The lengths that define a time window, taken from the expressions that Spark builds for it."""
    window_id = attribute.exprId().id()
    for node in nodes(aggregate):
        for definition in _definitions(node, window_id):
            if kind(definition) == "Alias" and definition.exprId().id() != window_id:
                continue
            if numbers := re.findall(r"(\d{4,})L?", str(definition.sql())):
                seconds = sorted({int(number) / 1_000_000 for number in numbers})
                return " / ".join(f"{second:g} s" for second in seconds)
    return ""


def _definitions(node: Node, window_id: int) -> Iterator[Node]:
    """The expressions of a node that may define a window."""
    if kind(node) == "Project":
        yield from items(node.projectList())
    elif kind(node) == "Expand":
        columns = items(node.output())
        for row in items(node.projections()):
            for column, expression in zip(columns, items(row), strict=False):
                if column.exprId().id() == window_id:
                    yield expression


def _column(attribute: Node) -> str:
    return f"{attribute.name()} {_type(attribute.dataType())}"


def _type(data_type: Node) -> str:
    return str(data_type.catalogString())


def _words(sql: str) -> str:
    """An expression without the quotes and qualifiers that Spark adds to names."""
    return re.sub(r"spark_catalog\.|`", "", str(sql))
