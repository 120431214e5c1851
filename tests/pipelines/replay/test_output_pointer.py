"""The pointers that say which topic is the current version of an output."""

import json
import threading

from pyspark.sql import DataFrame

from millrace.pipelines import log, pipeline
from millrace.pipelines.replay import output_pointer
from millrace.pipelines.replay.output_pointer import Output, Version
from millrace.testing import Broker

from ...waiting import until


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
        split, [Output(output.name, output.name, 2, "split", 1) for output in moved], broker.bootstrap
    )
    reader.start()
    output_pointer.publish(split, moved, broker.bootstrap)
    until(lambda: {3} in seen)
    ended.set()
    reader.join()
    assert all(versions in ({2}, {3}) for versions in seen)


def test_pointer_is_plain_json() -> None:
    output = Output("trending", "trending-v2", 2, "trending", 1793534400000)
    assert json.loads(output.written()) == {
        "topic": "trending-v2",
        "version": 2,
        "pipeline": "trending",
        "since": 1793534400000,
    }
    assert Output.read("trending", output.written()) == output
