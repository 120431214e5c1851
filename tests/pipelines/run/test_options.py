"""Outputs that a run writes to other topics than declared."""

import pytest

from millrace.pipelines import PipelineError, log, pipeline
from millrace.pipelines.run.options import redirected


@pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
def words(lines: object) -> object:
    return lines


def test_outputs_are_redirected_by_name() -> None:
    assert redirected(words, ["old"])["output"] == log.json("old", key="word")
    assert redirected(words, ["output=old"])["output"].name == "old"
    with pytest.raises(PipelineError, match="write --output output=TOPIC"):
        redirected(words, ["wrods=old"])
