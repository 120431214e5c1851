"""Old module names still work for one release, and say where their contents are now."""

import importlib
import json
from pathlib import Path

import pytest

from millrace.pipelines import LogTopic, Pipeline, log, old_names, pipeline
from millrace.pipelines.kafka.offsets import end_offsets

OLD_NAMES: dict[str, list[str]] = json.loads(Path(__file__).with_name("old_names.json").read_text())


@pipeline(lines=log.text("lines"), output=log.text("copies"))
def copy(lines: object) -> object:
    return lines


@pytest.mark.parametrize("module", OLD_NAMES)
def test_every_public_name_of_an_old_module_is_found_with_a_warning(module: str) -> None:
    old = importlib.import_module(f"millrace.pipelines.{module}")
    for name in OLD_NAMES[module]:
        with pytest.warns(DeprecationWarning, match=rf"millrace\.pipelines\.{module}\.{name} is now "):
            assert getattr(old, name) is not None


def test_old_modules_are_imported_from_the_package_too() -> None:
    with pytest.warns(DeprecationWarning, match=r"offsets\.end_offsets is now .*kafka\.offsets\.end_offsets"):
        from millrace.pipelines import offsets

        assert offsets.end_offsets is end_offsets
    with pytest.warns(DeprecationWarning):
        from millrace.pipelines.log import LogTopic as OldLogTopic
    assert OldLogTopic is LogTopic


def test_importing_the_old_module_of_the_decorator_leaves_the_decorator_alone() -> None:
    with pytest.warns(DeprecationWarning):
        from millrace.pipelines.pipeline import Pipeline as OldPipeline
    import millrace.pipelines

    assert OldPipeline is Pipeline
    assert millrace.pipelines.pipeline is pipeline


def test_a_run_still_takes_its_options_as_keywords() -> None:
    with pytest.warns(DeprecationWarning, match="run.old_run.OldRun"):
        from millrace.pipelines.running import Run
    run = Run(copy, None, "localhost:9092", checkpoints="/checkpoints", available_now=True, outputs=None)
    assert run.location("copy") == "/checkpoints/copy"


def test_a_name_that_never_existed_is_not_found() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        importlib.import_module("millrace.pipelines.running").nonsense()
    assert set(OLD_NAMES) == set(old_names.MOVED)
