"""`millrace replay` and `millrace view`: what they show and refuse; tests/pipelines has what they do."""

from pathlib import Path

import pytest

from millrace.pipelines import log, pipeline
from millrace.pipelines.replay import output_pointer
from millrace.pipelines.replay.output_pointer import Building, Output
from millrace.pipelines.spark import session
from millrace.testing import Broker

from .conftest import Run


@pipeline(lines=log.text("lines"), output=log.json("trending"))
def trending(lines: object) -> object:
    return lines


TWO = """
from millrace.pipelines import log, pipeline

@pipeline(lines=log.text("lines"), output=log.text("a"))
def first(lines):
    return lines

@pipeline(lines=log.text("lines"), output=log.text("b"))
def second(lines):
    return lines
"""


def test_the_versions_of_outputs_are_shown(run: Run, broker: Broker) -> None:
    assert "no output has been replayed" in run("replay", "--list").output
    building = Building(3, "trending-v3", 0)
    output_pointer.publish(
        trending, [Output("trending", "trending-v2", 2, "trending", 0, building)], broker.bootstrap
    )
    assert run("replay", "--status").output.splitlines() == [
        "OUTPUT\tVERSION\tTOPIC\tPIPELINE\tSINCE\tBUILDING",
        "trending\t2\ttrending-v2\ttrending\t-\ttrending-v3",
    ]


def test_what_to_replay_has_to_be_one_pipeline(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    assert "give the file to replay, or --status" in run("replay", fails=True).output
    assert f"choose one: {file}:first" in run("replay", file, fails=True).output
    assert (
        "'soon' is not a point in time" in run("replay", f"{file}:first", "--from", "soon", fails=True).output
    )


def test_a_file_without_a_view_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    assert "has no view; write VIEW = View(" in run("view", file, fails=True).output
    assert "such as 6h" in run("view", file, "--every", "often", fails=True).output


VIEW = """
from millrace.pipelines import View, log, pipeline

@pipeline(lines=log.text("nowhere"), output=log.text("a"))
def copy(lines):
    return lines

VIEW = View(copy, key=["value"], merge={})
"""


@pytest.mark.parametrize("command", ["replay", "view"])
def test_missing_topic_is_reported_before_spark_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(session, "session", lambda *_, **__: pytest.fail("Spark was started"))
    file = tmp_path / "view.py"
    file.write_text(VIEW)
    output = run(command, file, fails=True).output
    assert "create it with `millrace topics --create --topic nowhere`" in output
