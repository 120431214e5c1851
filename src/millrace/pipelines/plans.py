"""What Spark's analyzed plan of a DataFrame says: its operators, its sources, and what it keeps as state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millrace.pipelines.gateway import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Node = Any
"""A node of a plan, or an expression: an object in the Java machine."""


@dataclass(frozen=True, slots=True)
class Stateful:
    """An operator that keeps state between batches, and what decides whether the state can be used again."""

    operator: str
    keys: tuple[str, ...]
    state: tuple[str, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        of = f" of {', '.join(self.state)}" if self.state else ""
        return f"{self.operator}{by}{of}"


class Plan:
    """The analyzed plan of a DataFrame: as the user wrote it, with every name resolved.

    Every question to the Java machine takes its time, so the plan is walked once.
    """

    def __init__(self, frame: DataFrame) -> None:
        self.root: Node = frame._jdf.queryExecution().analyzed()
        self.nodes = list(nodes(self.root))
        self.kinds = [kind(node) for node in self.nodes]
        self.streaming = [bool(node.isStreaming()) for node in self.nodes]
        self._patterns: Any = jvm(frame.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern

    def streams(self) -> Iterator[tuple[str, Node]]:
        """The nodes that work on streams, with their kinds, parents before children."""
        for name, node, is_streaming in zip(self.kinds, self.nodes, self.streaming, strict=True):
            if is_streaming:
                yield name, node

    @cached_property
    def has_python(self) -> bool:
        """Whether a Python function is part of it."""
        if self.root.containsPattern(self._patterns.PYTHON_UDF()):
            return True
        return any(re.search("Python|Pandas|Arrow|PySpark|InBatches", name) for name in self.kinds)

    @cached_property
    def sources(self) -> list[str]:
        """The topics or patterns that its streams read, in Spark's order, which offsets are kept in."""
        found = []
        for name, node in self.streams():
            if name == "StreamingRelationV2":
                options = node.extraOptions()
                topic = options.get("subscribe") or options.get("subscribePattern") or options.get("assign")
                found.append(str(topic or node.sourceName()))
        return found

    @cached_property
    def stateful(self) -> list[Stateful]:
        """The operators that keep state, those nearest to the output first."""
        return [found for name, node in self.streams() if (found := _stateful(name, node)) is not None]

    @property
    def aggregates(self) -> bool:
        """Whether results change as records come: a stream is aggregated."""
        return any(name == "Aggregate" for name, _ in self.streams())

    @cached_property
    def has_sessions(self) -> bool:
        """Whether a stream is aggregated by session windows, whose results are final or nothing."""
        return any(
            kind(key) == "AttributeReference" and key.metadata().contains("spark.sessionWindow")
            for name, node in self.streams()
            if name == "Aggregate"
            for key in items(node.groupingExpressions())
        )


def stateful(frame: DataFrame) -> list[Stateful]:
    """The operators of a DataFrame's plan that keep state, those nearest to the output first."""
    return Plan(frame).stateful


def nodes(plan: Node) -> Iterator[Node]:
    """The nodes of a plan, parents before children."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def kind(node: Node) -> str:
    """The name of a node's class."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _stateful(name: str, node: Node) -> Stateful | None:
    match name:
        case "Join":
            return _join(node) if all(child.isStreaming() for child in items(node.children())) else None
        case "Aggregate":
            return Stateful(
                "aggregation",
                tuple(_key(node, one) for one in items(node.groupingExpressions())),
                tuple(_functions(node)),
            )
        case "Distinct":
            return Stateful("deduplication", tuple(_column(one) for one in items(node.output())), ())
        case "Deduplicate":
            return Stateful("deduplication", tuple(sorted(_column(one) for one in items(node.keys()))), ())
        case "DeduplicateWithinWatermark":
            keys = tuple(sorted(_column(one) for one in items(node.keys())))
            return Stateful("deduplication within the watermark", keys, ())
        case "FlatMapGroupsInPandasWithState":
            keys = tuple(_column(one) for one in items(node.groupingAttributes()))
            return Stateful("stateful function", keys, (_type(node.stateType()),))
        case "TransformWithStateInPySpark" | "TransformWithStateInPandas":
            # What its variables are, only the function knows; Spark itself compares them.
            keys = tuple(_column(one) for one in items(node.leftAttributes()))
            return Stateful("stateful processor", keys, ())
        case "GlobalLimit":
            return Stateful("limit", (), (str(node.limitExpr().sql()),))
    return None


def _join(node: Node) -> Stateful:
    left, right = items(node.children())
    condition = node.condition()
    on = (_words(condition.get().sql()),) if condition.isDefined() else ()
    sides = tuple(
        f"{side} side ({', '.join(sorted(_column(one) for one in items(child.output())))})"
        for side, child in (("left", left), ("right", right))
    )
    return Stateful(f"{str(node.joinType().sql()).lower()} join of streams", on, sides)


def _functions(aggregate: Node) -> Iterator[str]:
    """The aggregate functions of an aggregation, each once, whatever is made of their results."""
    seen = set()
    for expression in items(aggregate.aggregateExpressions()):
        for one in _within(expression):
            if kind(one) == "AggregateExpression":
                text = f"{_words(one.sql())} {_type(one.dataType())}"
                if text not in seen:
                    seen.add(text)
                    yield text
            elif "PythonUDF" in kind(one) or kind(one) == "PythonUDAF":
                yield f"{_words(one.sql())} {_type(one.dataType())}"


def _within(expression: Node) -> Iterator[Node]:
    yield expression
    if kind(expression) == "AggregateExpression":
        return
    for child in items(expression.children()):
        yield from _within(child)


def _key(aggregate: Node, expression: Node) -> str:
    """A key of an aggregation; of a window of time with its length, which state depends on too."""
    text = f"{_words(expression.sql())} {_type(expression.dataType())}"
    if kind(expression) != "AttributeReference" or not expression.metadata().contains("spark.timeWindow"):
        return _column(expression) if kind(expression) == "AttributeReference" else text
    return f"window {_window(aggregate, expression)}".rstrip()


def _window(aggregate: Node, attribute: Node) -> str:
    """What defines a window of time: the numbers in the expressions that Spark makes of it."""
    wanted = attribute.exprId().id()
    for node in nodes(aggregate):
        if kind(node) == "Project":
            definitions = [items(node.projectList())]
        elif kind(node) == "Expand":
            names = items(node.output())
            definitions = [
                [one for name, one in zip(names, items(row), strict=False) if name.exprId().id() == wanted]
                for row in items(node.projections())
            ]
        else:
            continue
        for row in definitions:
            for one in row:
                if kind(one) == "Alias" and one.exprId().id() != wanted:
                    continue
                if numbers := re.findall(r"(\d{4,})L?", str(one.sql())):
                    seconds = sorted({int(number) / 1_000_000 for number in numbers})
                    return " / ".join(f"{second:g} s" for second in seconds)
    return ""


def _column(attribute: Node) -> str:
    return f"{attribute.name()} {_type(attribute.dataType())}"


def _type(data_type: Node) -> str:
    return str(data_type.catalogString())


def _words(sql: str) -> str:
    """An expression without the quotes and qualifiers that Spark puts around names."""
    return re.sub(r"spark_catalog\.|`", "", str(sql))
