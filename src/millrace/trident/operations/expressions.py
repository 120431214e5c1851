"""Expressions over fields: `field("price") * field("count")`, `field("age") >= 18`.

Spark runs them as native expressions, without Python. A missing value (None) makes the result missing.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def _divided(left: Any, right: Any) -> float | None:
    return None if right == 0 else left / right


# Spark's names for comparisons and maths are those of Python's operators. Division by zero gives None.
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
TEXT_FUNCTIONS: Mapping[str, Callable[[str], Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
}


class Expression(ABC):
    """An expression over the fields of a tuple."""

    @abstractmethod
    def evaluate(self, row: Mapping[str, Any]) -> Any:
        """The value for a tuple, given by field."""

    @property
    @abstractmethod
    def fields(self) -> set[str]:
        """The fields that the expression reads."""

    def __add__(self, other: Any) -> Expression:
        return Operation("+", self, as_expression(other))

    def __radd__(self, other: Any) -> Expression:
        return Operation("+", as_expression(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Operation("-", self, as_expression(other))

    def __rsub__(self, other: Any) -> Expression:
        return Operation("-", as_expression(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Operation("*", self, as_expression(other))

    def __rmul__(self, other: Any) -> Expression:
        return Operation("*", as_expression(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Operation("/", self, as_expression(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Operation("/", as_expression(other), self)

    def __eq__(self, other: object) -> Any:
        return Operation("==", self, as_expression(other))

    def __ne__(self, other: object) -> Any:
        return Operation("!=", self, as_expression(other))

    def __lt__(self, other: Any) -> Expression:
        return Operation("<", self, as_expression(other))

    def __le__(self, other: Any) -> Expression:
        return Operation("<=", self, as_expression(other))

    def __gt__(self, other: Any) -> Expression:
        return Operation(">", self, as_expression(other))

    def __ge__(self, other: Any) -> Expression:
        return Operation(">=", self, as_expression(other))

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has a value only for a tuple; pass it to each, map or filter")

    def lower(self) -> Expression:
        """The text in lower case."""
        return TextFunction("lower", self)

    def upper(self) -> Expression:
        """The text in upper case."""
        return TextFunction("upper", self)

    def length(self) -> Expression:
        """The number of characters."""
        return TextFunction("length", self)


@dataclass(frozen=True, eq=False, repr=False)
class Field(Expression):
    """The value of a field."""

    name: str

    def evaluate(self, row: Mapping[str, Any]) -> Any:
        return row[self.name]

    @property
    def fields(self) -> set[str]:
        return {self.name}

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expression):
    """The same value for every tuple."""

    value: Any

    def evaluate(self, row: Mapping[str, Any]) -> Any:
        return self.value

    @property
    def fields(self) -> set[str]:
        return set()

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Operation(Expression):
    """Two expressions and an operator."""

    symbol: str
    left: Expression
    right: Expression

    def evaluate(self, row: Mapping[str, Any]) -> Any:
        left, right = self.left.evaluate(row), self.right.evaluate(row)
        return None if left is None or right is None else OPERATORS[self.symbol](left, right)

    @property
    def fields(self) -> set[str]:
        return self.left.fields | self.right.fields

    def __repr__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


@dataclass(frozen=True, eq=False, repr=False)
class TextFunction(Expression):
    """A function of a text."""

    name: str
    argument: Expression

    def evaluate(self, row: Mapping[str, Any]) -> Any:
        text = self.argument.evaluate(row)
        return None if text is None else TEXT_FUNCTIONS[self.name](text)

    @property
    def fields(self) -> set[str]:
        return self.argument.fields

    def __repr__(self) -> str:
        return f"{self.name}({self.argument})"


def field(name: str) -> Field:
    """The value of a field, for expressions."""
    return Field(name)


def as_expression(value: Any) -> Expression:
    """A value in an expression: itself, or a constant."""
    return value if isinstance(value, Expression) else Constant(value)
