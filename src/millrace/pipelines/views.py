"""Lambda: a served view that merges what a batch has computed with what a stream adds to it.

The batch covers the log up to a cut, which is one exact offset for each partition; the stream begins at the
same offsets. So each record counts in exactly one of the two layers, and the served row of a key is the merge
of both. A new batch moves the cut: its generation is built beside the one that is served and takes its place
in one step, when its stream has come as far as the other's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.pipelines import plans, reading
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import DeadLetters
from millrace.pipelines.merging import Merge, Rule
from millrace.pipelines.pipeline import ONLY_OUTPUT, Pipeline, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from millrace.pipelines.history import Bound
    from millrace.pipelines.serving import Served


@dataclass(frozen=True)
class View:
    """A view of a pipeline's output: one row for each key, always as new as the log.

    `merge` says for every other column how the batch's value and the stream's become one: "sum", "min",
    "max", "last", or a function of both.
    """

    pipeline: Pipeline
    key: list[str]
    merge: Mapping[str, Rule]
    name: str = ""
    """The compacted topic that the merged rows are in; `<pipeline>-view` if not given."""
    start: Bound | None = None
    """Where the batch begins; at the oldest record if not given."""
    rules: Merge = field(init=False)

    def __post_init__(self) -> None:
        if list(self.pipeline.outputs) != [ONLY_OUTPUT]:
            raise PipelineError(
                f"{self.pipeline.name} has several outputs; make a view of a pipeline with one output"
            )
        object.__setattr__(self, "name", self.name or f"{self.pipeline.name}-view")
        object.__setattr__(self, "rules", Merge(self.key, self.merge))

    @property
    def live(self) -> Pipeline:
        """The pipeline as the stream of a view runs it: every change of a row, each once."""
        return replace(self.pipeline, delivery="exactly-once", output_mode="update", mode="micro-batch")

    @property
    def batch(self) -> Pipeline:
        """The pipeline as the batches of a view run it: dead letters are the stream's business, once."""
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
        anew: bool = False,
        console: Console | None = None,
    ) -> Served:
        """Serve the view while the block lasts: from its last batch, or after a first one, or a new one.

        with view.serve(spark, bootstrap, checkpoints="checkpoints") as served:
            print(served.get("anna"), served.rows())
        """
        from millrace.pipelines.serving import Served

        return Served(self, spark, bootstrap, checkpoints=checkpoints, anew=anew, console=console)

    def check(self, spark: SparkSession, bootstrap: str) -> bool:
        """Refuse what cannot be merged at the seam; tells whether the stream's rows add up.

        The rows of an aggregation replace each other; those of a pipeline without one are added up by us.
        """
        inputs = self.pipeline.inputs.items()
        frame = self.pipeline.apply({name: reading.stream(spark, topic, bootstrap) for name, topic in inputs})
        self._check_columns(frame[ONLY_OUTPUT])
        kept = plans.stateful(frame[ONLY_OUTPUT])
        across = [one for one in kept if one.operator != "aggregation"]
        if across or len(kept) > 1:
            raise PipelineError(
                f"{self.name}: {(across or kept)[0]} depends on records of both sides of the cut, so that"
                " batch and stream cannot be merged; make a view of one aggregation, or use `millrace run`"
            )
        return not kept

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
    """The views of a Python file, in its order; `job.py:name` is only the one of that name."""
    path, _, wanted = str(job).partition(".py:")
    file = Path(f"{path}.py" if wanted else path)
    load(file)
    module = sys.modules[f"millrace_job_{file.stem}"]
    found = {id(value): value for value in vars(module).values() if isinstance(value, View)}
    views = [view for view in found.values() if wanted in ("", view.name, view.pipeline.name)]
    if not views:
        raise PipelineError(f"{job} has no view; write VIEW = View(pipeline, key=[...], merge={{...}})")
    return views
