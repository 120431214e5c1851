import io
import json
import threading
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
from millrace.pipelines.replay.output_pointer import Output, Version
from millrace.pipelines.replay.takeover import Takeover, is_running
from millrace.testing import Broker

from ..waiting import until


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


def test_a_new_version_takes_over_from_the_running_one(
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
        told = io.StringIO()
        replay = Replay(new, spark, bootstrap, checkpoints=tmp_path, console=Console(file=told, width=40))
        replay.begin()
        say(broker, "talk", "c")
        assert replay.catch_up()
        # Both run beside each other until the switch.
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
    assert "talk-shouting-v2: 3 records" in told.getvalue()


def test_an_interrupted_replay_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    say(broker, "news", *"abc")
    job = shouting("news", "")
    broken = Replay(job, spark, bootstrap, checkpoints=tmp_path)
    broken.begin()
    until(lambda: heard(broker, "news-loud-v2") == ["A", "B", "C"])
    broken.run.stop(now=True)
    with pytest.raises(PipelineError, match="was stopped"):
        say(broker, "news", "d")
        broken.catch_up()

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


def test_a_replay_is_begun_anew_from_a_later_point(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
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


def test_all_outputs_of_a_pipeline_move_at_once(broker: Broker) -> None:
    @pipeline(lines=log.text("lines"), output={"good": log.text("good"), "bad": log.text("bad")})
    def split(lines: DataFrame) -> dict[str, DataFrame]:
        return {"good": lines, "bad": lines}

    version = Version(split, 3)
    assert version.queries == ["split-v3.good", "split-v3.bad"]
    seen: list[set[int]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            known = output_pointer.all_outputs(broker.bootstrap)
            seen.append({known[name].version for name in version.topics})

    reader = threading.Thread(target=look)
    moved = [Output(name, topic, 3, "split", 1) for name, topic in version.topics.items()]
    output_pointer.publish(
        split, [Output(one.name, one.name, 2, "split", 1) for one in moved], broker.bootstrap
    )
    reader.start()
    output_pointer.publish(split, moved, broker.bootstrap)
    until(lambda: {3} in seen)
    ended.set()
    reader.join()
    assert all(versions in ({2}, {3}) for versions in seen)


def test_the_pointer_is_json_for_anyone_to_read() -> None:
    output = Output("trending", "trending-v2", 2, "trending", 1793534400000)
    assert json.loads(output.written()) == {
        "topic": "trending-v2",
        "version": 2,
        "pipeline": "trending",
        "since": 1793534400000,
    }
    assert Output.read("trending", output.written()) == output
