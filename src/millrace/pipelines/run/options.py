"""Options of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from millrace.pipelines.decorator import ONLY_OUTPUT, Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch: TypeAlias = "Callable[[DataFrame, int], None]"
AroundBatches: TypeAlias = Callable[[str, WriteBatch], WriteBatch]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; only the location of its checkpoints is required."""

    checkpoints: str | Path
    available_now: bool = False
    """Process what the inputs hold now, and end."""
    start: Mapping[str, Mapping[int, int]] | None = None
    """Offsets by topic and partition that override the inputs' own start, if there is no checkpoint."""
    outputs: Mapping[str, LogTopic] = field(default_factory=dict)
    """Topics that replace declared outputs, by output name."""
    name: str | None = None
    """Replaces the name of the pipeline."""
    around_batches: AroundBatches | None = None
    """Wraps the function that writes the batches of a query; it also gets the name of the query."""


def redirected(pipeline: Pipeline, texts: Iterable[str]) -> dict[str, LogTopic]:
    """Parse `NAME=topic`: outputs to write to other topics. For an only output the topic is enough."""
    outputs: dict[str, LogTopic] = {}
    for text in texts:
        name, equals, topic = text.rpartition("=")
        name = name if equals else ONLY_OUTPUT
        if name not in pipeline.outputs or not topic:
            known = ", ".join(f"--output {output}=TOPIC" for output in pipeline.outputs)
            raise PipelineError(f"--output {text}: {pipeline.name} has no such output; write {known}")
        outputs[name] = replace(pipeline.outputs[name], name=topic)
    return outputs
