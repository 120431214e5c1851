"""The word count as a PySpark user writes it: Structured Streaming, state in Python, every update to the log.

python by_hand.py BOOTSTRAP SOURCE TARGET CORES
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def count(key: tuple[str], groups: Iterator[Any], state: Any) -> Iterator[Any]:
    """One row for every occurrence of a word, with its count so far."""
    from pandas import DataFrame

    before = state.get[0] if state.exists else 0
    found = sum(len(group) for group in groups)
    state.update((before + found,))
    yield DataFrame({"word": [key[0]] * found, "count": range(before + 1, before + found + 1)})


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from millrace import jars

    bootstrap, source, target, cores = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", ",".join(map(str, jars.spark_kafka_jars())))
        # With the default of 200, a batch takes a minute on two cores.
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sentences = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .load()
    )
    words = sentences.select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
    counts = words.groupBy("word").applyInPandasWithState(
        count, "word string, count long", "count long", "update", "NoTimeout"
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            counts.select(F.col("word").alias("key"), F.to_json(F.struct("word", "count")).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .outputMode("update")
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
