"""Replays that build a new version of an output beside the running one."""

import io
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from millrace.pipelines import Pipeline, PipelineError, Run, RunOptions, log, pipeline
from millrace.pipelines.kafka import offsets, topic_admin
from millrace.pipelines.kafka.client import admin
from millrace.pipelines.kafka.records import read_to_end
from millrace.pipelines.replay import output_pointer
from millrace.pipelines.replay.new_version import Replay
from millrace.pipelines.replay.output_pointer import Version
from millrace.pipelines.replay.takeover import Takeover, is_running
from millrace.testing import Broker

from ...waiting import until


def shouting(topic: str, end: str) -> Pipeline:
    @pipeline(said=log.text(topic), output=log.text(f"{topic}-loud"), name=f"{topic}-shouting")
    def shout(said: DataFrame) -> DataFrame:
        return said.selectExpr(f"upper(value) || '{end}' as value")

    return shout


def say(broker: Broker, topic: str, *words: str) -> None:
    topic_admin.ensure(topic, broker.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for word in words:
        producer.produce(topic, word)
    producer.flush()


def heard(broker: Broker, topic: str) -> list[str]:
    return sorted(message.value().decode() for message in read_to_end(topic, broker.bootstrap))


def test_new_version_takes_over_from_the_running_one(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    say(broker, "talk", "a", "b")
    old, new = shouting("talk", "!"), shouting("talk", "?")
    first = Version(old, 1)
    assert output_pointer.current_version(old, bootstrap) == first
    assert output_pointer.current("talk-loud", bootstrap) == "talk-loud"
    run = Run(old, spark, bootstrap, RunOptions(checkpoints=tmp_path))
    run.start()
    with Takeover(run, first, bootstrap) as takeover:
        until(lambda: heard(broker, "talk-loud") == ["A!", "B!"])
        until(lambda: is_running(first, bootstrap))
        printed = io.StringIO()
        replay = Replay(new, spark, bootstrap, checkpoints=tmp_path, console=Console(file=printed, width=40))
        replay.begin()
        say(broker, "talk", "c")
        assert replay.catch_up()
        # Both versions run until the switch.
        assert output_pointer.current("talk-loud", bootstrap) == "talk-loud"
        replay.switch()
        assert output_pointer.current("talk-loud", bootstrap) == "talk-loud-v2"
        assert run.wait(60)
    assert takeover.superseded_by is not None
    assert takeover.superseded_by.topic == "talk-loud-v2"
    assert not replay.run.ended
    say(broker, "talk", "d")
    until(lambda: heard(broker, "talk-loud-v2") == ["A?", "B?", "C?", "D?"])
    assert "D!" not in heard(broker, "talk-loud")
    replay.drop_old()
    assert not topic_admin.exists("talk-loud", bootstrap)
    replay.run.stop()
    assert output_pointer.current_version(new, bootstrap) == Version(new, 2)
    assert "talk-shouting-v2: 3 records" in printed.getvalue()


def test_interrupted_replay_resumes(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap
    say(broker, "news", *"abc")
    job = shouting("news", "")
    interrupted = Replay(job, spark, bootstrap, checkpoints=tmp_path)
    interrupted.begin()
    until(lambda: heard(broker, "news-loud-v2") == ["A", "B", "C"])
    interrupted.run.stop(now=True)
    with pytest.raises(PipelineError, match="was stopped"):
        say(broker, "news", "d")
        interrupted.catch_up()

    with pytest.raises(PipelineError, match="give its directory with --checkpoints"):
        Replay(job, spark, bootstrap, checkpoints=tmp_path / "elsewhere").begin()

    again = Replay(job, spark, bootstrap, checkpoints=tmp_path)
    again.begin()
    assert again.is_resumed
    assert again.catch_up()
    again.switch()
    again.run.stop()
    assert heard(broker, "news-loud-v2") == ["A", "B", "C", "D"]
    assert output_pointer.all_outputs(bootstrap)["news-loud"].next is None


def test_replay_starts_over_from_a_later_offset(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap
    say(broker, "ads", "a")
    topic_admin.ensure("ads-loud", bootstrap, partitions=3, config={"retention.ms": "86400000"})
    topic_admin.ensure("ads-loud-v2", bootstrap)
    job = shouting("ads", "")
    with pytest.raises(PipelineError, match="--restart deletes it"):
        Replay(job, spark, bootstrap, checkpoints=tmp_path).begin()
    ends = offsets.end_offsets(bootstrap, ["ads"])
    say(broker, "ads", "b")
    replay = Replay(job, spark, bootstrap, checkpoints=tmp_path, start=ends)
    replay.begin(restart=True)
    assert replay.catch_up()
    replay.run.stop()
    assert heard(broker, "ads-loud-v2") == ["B"]
    assert offsets.partitions(admin(bootstrap), ["ads-loud-v2"]) == {"ads-loud-v2": [0, 1, 2]}
