"""The text of `millrace run --explain`: the mode of each query, the reason for it, and Spark's plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.pipelines.spark.gateway import jvm

if TYPE_CHECKING:
    from millrace.pipelines.run.lifecycle import Run
    from millrace.pipelines.run.query import Query


def explanation(run: Run) -> str:
    """Explain the queries of a run that is not started."""
    return "\n\n".join(_query(run, query) for query in run.plan())


def _query(run: Run, query: Query) -> str:
    state = [str(operator) for operator in query.plan.stateful]
    rows = {
        "reads": ", ".join(query.plan.sources) or "nothing",
        "writes": f"{query.topic.name}, {query.delivery}",
        "mode": f"{query.execution.mode}: {query.execution.reason}",
        "output": f"{query.execution.output_mode}: {_output(query)}",
        "state": "; ".join(state) or "none",
        "group": f"{query.name}, for its lag: millrace consumer-groups --describe --group {query.name}",
        "checkpoint": run.location(query.name),
    }
    lines = "\n".join(f"  {label:<11}{text}" for label, text in rows.items())
    return f"{query.name}\n{lines}\n\n{spark_plan(query)}"


def spark_plan(query: Query) -> str:
    """Spark's physical plan of a query."""
    frame = query.frame
    mode = jvm(frame.sparkSession).org.apache.spark.sql.execution.ExplainMode
    return str(frame._jdf.queryExecution().explainString(mode.fromString("simple"))).strip()


def _output(query: Query) -> str:
    match query.execution.output_mode:
        case "update":
            return "a row appears whenever it changes"
        case "complete":
            return "all rows appear again after every batch"
    return "a row appears once, when it is final"
