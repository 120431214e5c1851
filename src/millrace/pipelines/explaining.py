"""What `millrace run --explain` says: how each query would run, why, and Spark's plan of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.pipelines.gateway import jvm

if TYPE_CHECKING:
    from millrace.pipelines.queries import Query
    from millrace.pipelines.running import Run


def explanation(run: Run) -> str:
    """The whole text for a run that is not started."""
    return "\n\n".join(_query(run, one) for one in run.plan())


def _query(run: Run, query: Query) -> str:
    kept = [str(one) for one in query.plan.stateful]
    rows = {
        "reads": ", ".join(query.plan.sources) or "nothing",
        "writes": f"{query.topic.name}, {query.delivery}",
        "mode": f"{query.choice.mode}: {query.choice.why}",
        "output": f"{query.choice.output_mode}: {_output(query)}",
        "state": "; ".join(kept) or "none",
        "group": f"{query.name}, for its lag: millrace consumer-groups --describe --group {query.name}",
        "checkpoint": run.location(query.name),
    }
    told = "\n".join(f"  {label:<11}{text}" for label, text in rows.items())
    return f"{query.name}\n{told}\n\n{spark_plan(query)}"


def spark_plan(query: Query) -> str:
    """Spark's physical plan of a query."""
    frame = query.frame
    mode = jvm(frame.sparkSession).org.apache.spark.sql.execution.ExplainMode
    return str(frame._jdf.queryExecution().explainString(mode.fromString("simple"))).strip()


def _output(query: Query) -> str:
    match query.choice.output_mode:
        case "update":
            return "a row appears whenever it changes"
        case "complete":
            return "all rows appear again after every batch"
    return "a row appears once, when it is final"
