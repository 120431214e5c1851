"""Loads the Python file that declares pipelines."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import PipelineError


def load(job: str | Path) -> list[Pipeline]:
    """Return the pipelines of a Python file in order of declaration; `job.py:name` selects one by name."""
    file, wanted = split_job(job)
    pipelines = _pipelines_of(load_module(file))
    if not pipelines:
        raise PipelineError(f"{file} declares no pipeline; decorate a function with @pipeline(...)")
    if not wanted:
        return pipelines
    selected = [pipeline for pipeline in pipelines if pipeline.name == wanted]
    if not selected:
        names = ", ".join(pipeline.name for pipeline in pipelines)
        raise PipelineError(f"{file} has no pipeline called {wanted}; it has {names}")
    return selected


def split_job(job: str | Path) -> tuple[Path, str]:
    """Split `job.py:name` into the file and the name, which is empty if it is not given."""
    path, _, name = str(job).partition(".py:")
    return Path(f"{path}.py" if name else path), name


def load_module(file: Path) -> ModuleType:
    """Run a job file and return it as a module."""
    if not file.is_file():
        raise PipelineError(f"{file} does not exist; give the path of a Python file that declares a pipeline")
    from pyspark.cloudpickle import register_pickle_by_value

    # Modules beside the file can be imported, as with `python job.py`.
    sys.path.insert(0, str(file.parent.resolve()))
    name = f"millrace_job_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is not a Python file; give one that declares a pipeline")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Executors have no module of this name, so its functions are pickled with their code.
    register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module


def _pipelines_of(module: ModuleType) -> list[Pipeline]:
    distinct = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    return list(distinct.values())
