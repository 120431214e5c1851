"""Merges rows of the same key, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from millrace.pipelines.errors import PipelineError

Row: TypeAlias = dict[str, Any]
Rule: TypeAlias = Literal["sum", "min", "max", "last"] | Callable[[Any, Any], Any]

_RULES: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda older, newer: older + newer,
    "min": min,
    "max": max,
    "last": lambda older, newer: newer,
}


class Merge:
    """The key of a view and the rule that merges each of its other columns."""

    def __init__(self, key: Iterable[str], rules: Mapping[str, Rule]) -> None:
        self.key = tuple(key)
        self.columns = tuple(rules)
        self._rules = {column: _function(column, rule) for column, rule in rules.items()}
        if not self.key:
            raise PipelineError('a view needs a key: key=["word"]')
        if both := set(self.key) & set(rules):
            raise PipelineError(f"{', '.join(sorted(both))} is in key= and in merge=; leave it out of one")

    def key_of(self, row: Row) -> str:
        """The key of a row as text."""
        return key_text([row.get(column) for column in self.key])

    def __call__(self, older: Row | None, newer: Row | None) -> Row:
        """Merge the rows of a key. If a row or a value is missing, the other one counts."""
        if older is None or newer is None:
            return dict((older if newer is None else newer) or {})
        merged = {column: newer.get(column) for column in self.key}
        for column, rule in self._rules.items():
            left, right = older.get(column), newer.get(column)
            merged[column] = (
                rule(left, right) if left is not None and right is not None else _present(left, right)
            )
        return merged


class Layer:
    """The rows of one layer of a view by key. They replace each other, or accumulate."""

    def __init__(self, merge: Merge, *, accumulates: bool) -> None:
        self.rows: dict[str, Row] = {}
        self._merge = merge
        self._accumulates = accumulates

    def put(self, row: Row) -> str:
        """Add a row, replacing or accumulating the row of its key; return the key."""
        key = self._merge.key_of(row)
        known = self.rows.get(key)
        self.rows[key] = self._merge(known, row) if self._accumulates and known is not None else row
        return key


def key_text(values: list[Any]) -> str:
    """A key as text: the value of a single column, or the JSON of several."""
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else _json(values[0])
    return _json(values)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _present(left: Any, right: Any) -> Any:
    return left if right is None else right


def _function(column: str, rule: Rule) -> Callable[[Any, Any], Any]:
    if callable(rule):
        return rule
    if rule not in _RULES:
        raise PipelineError(
            f"{column} cannot be merged by {rule!r}; use {', '.join(_RULES)}, or a function of two values"
        )
    return _RULES[rule]
