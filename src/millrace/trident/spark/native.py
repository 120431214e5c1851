"""Known operations as expressions of Spark, which run without Python."""

from __future__ import annotations

import re
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.trident.model import nodes
from millrace.trident.operations.aggregators import AnyAggregator, Count, Max, Min, Sum
from millrace.trident.operations.expressions import Constant, Expression, Field, Operation, TextFunction
from millrace.trident.operations.functions import Equals, Filter, FilterNull, Negate, Split


def column(name: str) -> Column:
    """A column by its exact name, which may hold a dot."""
    return F.col(f"`{name}`")


def expression(source: Expression) -> Column:
    """An expression over fields."""
    match source:
        case Field(name=name):
            return column(name)
        case Constant(value=value):
            return F.lit(value)
        case TextFunction(name=name, argument=argument):
            return {"lower": F.lower, "upper": F.upper, "length": F.length}[name](expression(argument))
        case Operation(symbol=symbol, left=left, right=right):
            return _operation(symbol, expression(left), expression(right))
    raise AssertionError(f"an expression of type {type(source).__name__}")


def _operation(symbol: str, left: Column, right: Column) -> Column:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return F.try_divide(left, right)
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
    raise AssertionError(f"an operator {symbol}")


def function(node: nodes.Each) -> Column:
    """The output of a known function. Split has a row for each part."""
    if isinstance(node.function, Split):
        separator = re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", node.function.separator)
        return F.explode(F.split(column(node.inputs[0]), separator, -1))
    assert isinstance(node.function, Expression)
    return expression(node.function)


def condition(filter: Filter | Expression, inputs: tuple[str, ...]) -> Column:
    """A known filter; a missing value counts as false."""
    columns = [column(name) for name in inputs]
    match filter:
        case Negate(filter=inner):
            assert isinstance(inner, Filter)
            return ~condition(inner, inputs)
        case FilterNull():
            return reduce(and_, (value.isNotNull() for value in columns))
        case Equals():
            return reduce(and_, (columns[0].eqNullSafe(value) for value in columns))
        case Expression():
            return F.coalesce(expression(filter), F.lit(False))
    raise AssertionError(f"a filter of type {type(filter).__name__}")


def aggregate(aggregator: AnyAggregator, inputs: tuple[str, ...]) -> Column:
    """A known aggregator over the rows of a group."""
    match aggregator:
        case Count():
            return F.count(F.lit(1))
        case Sum():
            return F.coalesce(F.sum(column(inputs[0])), F.lit(0))
        case Min():
            return F.min(column(inputs[0]))
        case Max():
            return F.max(column(inputs[0]))
    raise AssertionError(f"an aggregator of type {type(aggregator).__name__}")
