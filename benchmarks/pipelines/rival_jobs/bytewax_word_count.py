"""Word count with Bytewax: keyed state in memory, with snapshots in SQLite."""

import json
import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from sentence import words

brokers = [os.environ["BOOTSTRAP"]]


def split(message: KafkaSourceMessage) -> list[str]:
    return words(message.value.decode())


def count(counted: int | None, _: str) -> tuple[int, int]:
    return (counted or 0) + 1, (counted or 0) + 1


def record(update: tuple[str, int]) -> KafkaSinkMessage:
    word, counted = update
    return KafkaSinkMessage(word.encode(), json.dumps({"word": word, "count": counted}).encode())


flow = Dataflow("word_count")
sentences = kafka.input("sentences", flow, brokers=brokers, topics=["sentences"])
keyed = op.key_on("key", op.flat_map("split", sentences.oks, split), lambda word: word)
counts = op.stateful_map("count", keyed, count)
kafka.output("words", op.map("record", counts, record), brokers=brokers, topic="words")
