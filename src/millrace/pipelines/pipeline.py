"""A pipeline: a function from DataFrames to DataFrames, and the topics that it reads and writes."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Delivery = Literal["exactly-once", "at-least-once"]
Mode = Literal["auto", "real-time", "micro-batch"]
OutputMode = Literal["append", "update", "complete"]
Outputs: TypeAlias = "DataFrame | Mapping[str, DataFrame]"

ONLY_OUTPUT = "output"


@dataclass(frozen=True)
class Pipeline:
    """What `@pipeline` makes of a function; calling it calls the function."""

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
        """Call the function, and return its DataFrames by the names of the outputs."""
        result = self.function(**frames)
        found = dict(result) if isinstance(result, Mapping) else {ONLY_OUTPUT: result}
        if found.keys() != self.outputs.keys():
            raise PipelineError(
                f"{self.name} returns {_names(found)} and declares {_names(self.outputs)};"
                " return a DataFrame for every output, in a dict if there are several"
            )
        return found


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
    """Declare a pipeline: its inputs by the names of the function's arguments, and its output.

    `output` is a topic, or several by name if the function returns a dict of DataFrames. `delivery` is how
    often a record of the output appears when something fails: exactly once (for readers of committed data),
    or at least once, which is faster and the one that real-time mode can do. `output_mode` and `mode` are
    chosen by the plan unless given, `trigger` is an interval ("10 seconds") between micro-batches, `settings`
    are Spark's for this query.
    """

    def declare(function: Callable[..., Outputs]) -> Pipeline:
        chosen = name or function.__name__.replace("_", "-")
        arguments = inspect.signature(function).parameters
        if arguments.keys() != inputs.keys():
            raise PipelineError(
                f"{chosen} takes {_names(arguments)} and declares {_names(inputs)};"
                " declare an input for every argument, under its name"
            )
        for topic in inputs.values():
            if topic.format == "json" and topic.schema is None:
                raise PipelineError(
                    f'{chosen} reads {topic.name}, which needs a schema: log.json("{topic.name}", "a string")'
                )
        if all(topic.table for topic in inputs.values()):
            raise PipelineError(f"{chosen} reads no stream; declare at least one input that is not a table")
        outputs = {ONLY_OUTPUT: output} if isinstance(output, LogTopic) else dict(output)
        spark = dict(settings or {})
        return Pipeline(chosen, function, dict(inputs), outputs, delivery, mode, output_mode, trigger, spark)

    return declare


def load(job: str | Path) -> list[Pipeline]:
    """The pipelines of a Python file, in its order; `job.py:name` is only the one of that name."""
    path, _, wanted = str(job).partition(".py:")
    file = Path(f"{path}.py" if wanted else path)
    found = _pipelines_of(file)
    if not found:
        raise PipelineError(f"{file} declares no pipeline; decorate a function with @pipeline(...)")
    if wanted:
        found = [one for one in found if one.name == wanted]
        if not found:
            raise PipelineError(f"{file} has no pipeline called {wanted}; it has {_of_file(file)}")
    return found


def _pipelines_of(file: Path) -> list[Pipeline]:
    if not file.is_file():
        raise PipelineError(f"{file} is not there; give the path of a Python file that declares a pipeline")
    from pyspark.cloudpickle import register_pickle_by_value

    # What lies beside the file can be imported, as by `python job.py`.
    sys.path.insert(0, str(file.parent.resolve()))
    name = f"millrace_job_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is not a Python file; give one that declares a pipeline")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Executors have no module of this name: its functions travel whole.
    register_pickle_by_value(module)
    spec.loader.exec_module(module)
    distinct = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    return list(distinct.values())


def _of_file(file: Path) -> str:
    return ", ".join(one.name for one in _pipelines_of(file))


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "nothing"
