"""Word count with Quix Streams: words move to the partition of their key, state is in RocksDB."""

import os
import sys
from typing import Any

from quixstreams import Application, State
from sentence import words

app = Application(
    broker_address=os.environ["BOOTSTRAP"],
    consumer_group="word-count",
    auto_offset_reset="earliest",
    processing_guarantee=os.environ["DELIVERY"],
    state_dir=sys.argv[1],
    loglevel="WARNING",
)


def count(word: str, state: State) -> dict[str, Any]:
    counted = state.get("count", 0) + 1
    state.set("count", counted)
    return {"word": word, "count": counted}


sentences = app.dataframe(app.topic("sentences", value_deserializer="str"))
counts = (
    sentences.apply(words, expand=True)
    .group_by(
        lambda word: word,
        name="word",
        key_serializer="str",
        key_deserializer="str",
        value_serializer="str",
        value_deserializer="str",
    )
    .apply(count, stateful=True)
)
counts.to_topic(app.topic("words", key_serializer="str", value_serializer="json"))

if __name__ == "__main__":
    app.run()
