"""Word count as in Faust's example: an agent sends words to another, which counts them."""

import os
from typing import Any

import faust
from sentence import words

app = faust.App(
    "word-count",
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    topic_partitions=4,
    topic_replication_factor=1,
)
sentences = app.topic("sentences", value_serializer="raw", value_type=bytes)
output = app.topic("words", key_serializer="raw", value_serializer="json")
counts = app.Table("counts", default=int)


@app.agent(sentences)
async def split(stream: Any) -> None:
    async for sentence in stream:
        for word in words(sentence.decode()):
            await count.send(key=word, value=word)


@app.agent(value_type=str)
async def count(stream: Any) -> None:
    async for word in stream:
        counts[word] += 1
        await output.send(key=word.encode(), value={"word": word, "count": counts[word]})


if __name__ == "__main__":
    app.main()
