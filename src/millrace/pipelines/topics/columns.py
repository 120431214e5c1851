"""Columns as Spark names and compares them, shared by decoding and encoding."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from millrace.pipelines.errors import PipelineError


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it contains."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A name as Spark's SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def same_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that Spark takes for this one: Spark ignores case."""
    return next((candidate for candidate in names if candidate.casefold() == name.casefold()), None)


def require_distinct(names: list[str], where: str, remedy: str) -> None:
    """Refuse names that Spark would confuse."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise PipelineError(f"{where} has the column {name} twice; {remedy}")
        seen.add(name.casefold())


def type_name(field: StructField) -> str:
    """The type of a column in Spark's syntax."""
    return field.dataType.simpleString()
