"""The `@pipeline` decorator: a function from DataFrames to DataFrames, and the topics it reads and writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Delivery = Literal["exactly-once", "at-least-once"]
Mode = Literal["auto", "real-time", "micro-batch"]
OutputMode = Literal["append", "update", "complete"]
Outputs: TypeAlias = "DataFrame | Mapping[str, DataFrame]"

ONLY_OUTPUT = "output"


@dataclass(frozen=True)
class Pipeline:
    """A function decorated with `@pipeline`. Calling the pipeline calls the function."""

    name: str
    function: Callable[..., Outputs]
    inputs: Mapping[str, LogTopic]
    outputs: Mapping[str, LogTopic]
    delivery: Delivery = "exactly-once"
    mode: Mode = "auto"
    output_mode: OutputMode | None = None
    trigger: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        return self.function(*args, **kwargs)

    def apply(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Call the function and return its DataFrames by output name."""
        result = self.function(**frames)
        returned = dict(result) if isinstance(result, Mapping) else {ONLY_OUTPUT: result}
        if returned.keys() != self.outputs.keys():
            raise PipelineError(
                f"{self.name} returns {_names(returned)} but declares {_names(self.outputs)};"
                " return one DataFrame per output, in a dict if there are several"
            )
        return returned


def pipeline(
    *,
    output: LogTopic | Mapping[str, LogTopic],
    name: str | None = None,
    delivery: Delivery = "exactly-once",
    mode: Mode = "auto",
    output_mode: OutputMode | None = None,
    trigger: str | None = None,
    settings: Mapping[str, str] | None = None,
    **inputs: LogTopic,
) -> Callable[[Callable[..., Outputs]], Pipeline]:
    """Declare a pipeline: one input per argument of the function, under the argument's name, and the output.

    `output` is a topic, or a dict of topics if the function returns a dict of DataFrames. `delivery` says how
    often a record appears in the output after a failure: exactly once (for readers of committed data), or at
    least once, which is faster and the only choice in real-time mode. The plan decides `output_mode` and
    `mode` unless they are given. `trigger` is the interval between micro-batches ("10 seconds"). `settings`
    are Spark settings for this query.
    """

    def declare(function: Callable[..., Outputs]) -> Pipeline:
        pipeline_name = name or function.__name__.replace("_", "-")
        arguments = inspect.signature(function).parameters
        if arguments.keys() != inputs.keys():
            raise PipelineError(
                f"{pipeline_name} takes {_names(arguments)} but declares {_names(inputs)};"
                " declare one input per argument, under the argument's name"
            )
        for topic in inputs.values():
            if topic.format == "json" and topic.schema is None:
                raise PipelineError(
                    f"{pipeline_name} reads {topic.name}, which needs a schema:"
                    f' log.json("{topic.name}", "a string")'
                )
        if all(topic.table for topic in inputs.values()):
            raise PipelineError(
                f"{pipeline_name} reads no stream; declare at least one input that is not a table"
            )
        outputs = {ONLY_OUTPUT: output} if isinstance(output, LogTopic) else dict(output)
        return Pipeline(
            pipeline_name,
            function,
            dict(inputs),
            outputs,
            delivery,
            mode,
            output_mode,
            trigger,
            dict(settings or {}),
        )

    return declare


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "nothing"
