"""Declares a view, which merges the result of a batch with what a stream adds to it (Lambda).

The batch covers the log up to a cut, one exact offset per partition. The stream starts at the same offsets.
So each record counts in exactly one of the two layers, and the served row of a key is the merge of both. A
new batch moves the cut: its generation is built beside the served one, and replaces it in one step once its
stream has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.pipelines.decorator import ONLY_OUTPUT, Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.job_file import load_module, split_job
from millrace.pipelines.spark import query_plan
from millrace.pipelines.topics import reading
from millrace.pipelines.topics.declaration import DeadLetters
from millrace.pipelines.views.merge import Merge, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from millrace.pipelines.history.range import Bound
    from millrace.pipelines.views.served_view import ServedView


@dataclass(frozen=True)
class View:
    """A view of a pipeline's output: one row per key, always as fresh as the log.

    `merge` says for every other column how the values of batch and stream are merged: "sum", "min", "max",
    "last", or a function of both.
    """

    pipeline: Pipeline
    key: list[str]
    merge: Mapping[str, Rule]
    name: str = ""
    """The compacted topic of the merged rows; `<pipeline>-view` if not given."""
    start: Bound | None = None
    """The start of the batch; the oldest record if not given."""
    rules: Merge = field(init=False)

    def __post_init__(self) -> None:
        if list(self.pipeline.outputs) != [ONLY_OUTPUT]:
            raise PipelineError(
                f"{self.pipeline.name} has several outputs; declare a view of a pipeline with one output"
            )
        object.__setattr__(self, "name", self.name or f"{self.pipeline.name}-view")
        object.__setattr__(self, "rules", Merge(self.key, self.merge))

    @property
    def live(self) -> Pipeline:
        """The pipeline as the view's stream runs it: every change of a row, exactly once."""
        return replace(self.pipeline, delivery="exactly-once", output_mode="update", mode="micro-batch")

    @property
    def batch(self) -> Pipeline:
        """The pipeline as the view's batches run it: without dead letters, which the stream writes once."""
        inputs = {
            name: replace(topic, malformed="drop") if isinstance(topic.malformed, DeadLetters) else topic
            for name, topic in self.pipeline.inputs.items()
        }
        return replace(self.live, inputs=inputs)

    def serve(
        self,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        new_batch: bool = False,
        console: Console | None = None,
        anew: bool = False,
    ) -> ServedView:
        """Serve the view during a block, from its last batch; `new_batch` computes a new one first.

        The old name of `new_batch` is still accepted; the next release drops it.

        with view.serve(spark, bootstrap, checkpoints="checkpoints") as served:
            print(served.get("anna"), served.rows())
        """
        from millrace.pipelines.views.served_view import ServedView

        return ServedView(
            self, spark, bootstrap, checkpoints=checkpoints, new_batch=new_batch or anew, console=console
        )

    def check(self, spark: SparkSession, bootstrap: str) -> bool:
        """Refuse a pipeline whose results cannot be merged; return whether its rows accumulate.

        The rows of an aggregation replace each other. The rows of other pipelines are merged as they arrive.
        """
        inputs = self.pipeline.inputs.items()
        frame = self.pipeline.apply({name: reading.stream(spark, topic, bootstrap) for name, topic in inputs})
        self._check_columns(frame[ONLY_OUTPUT])
        stateful = query_plan.stateful(frame[ONLY_OUTPUT])
        others = [operator for operator in stateful if operator.operator != "aggregation"]
        if others or len(stateful) > 1:
            raise PipelineError(
                f"{self.name}: {(others or stateful)[0]} depends on records on both sides of the cut, so"
                " batch and stream cannot be merged; declare a view of one aggregation, or use `millrace run`"
            )
        return not stateful

    def _check_columns(self, frame: DataFrame) -> None:
        known = {*self.key, *self.merge}
        if missing := sorted(known - set(frame.columns)):
            raise PipelineError(
                f"{self.name}: {self.pipeline.name} has no column {', '.join(missing)};"
                f" it has {', '.join(frame.columns)}"
            )
        if unknown := [column for column in frame.columns if column not in known]:
            rules = ", ".join(f'"{column}": "sum"' for column in unknown)
            raise PipelineError(
                f"{self.name}: there is no rule for {', '.join(unknown)};"
                f" add it to key=, or to merge={{{rules}}}"
            )


def load_views(job: str | Path) -> list[View]:
    """Return the views of a Python file in order of declaration; `job.py:name` selects one by name."""
    file, wanted = split_job(job)
    module = load_module(file)
    distinct = {id(value): value for value in vars(module).values() if isinstance(value, View)}
    views = [view for view in distinct.values() if wanted in ("", view.name, view.pipeline.name)]
    if not views:
        raise PipelineError(f"{job} has no view; write VIEW = View(pipeline, key=[...], merge={{...}})")
    return views
