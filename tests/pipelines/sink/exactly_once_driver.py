"""A driver that can be killed: `exactly_once_driver.py MASTER`, with requests on its standard input.

A line is `BOOTSTRAP CHECKPOINT JOB`: from then on it copies SOURCE to SINK there, exactly once, and restarts
its query whenever it fails. It ends with its input, or when it is killed.
"""

import sys
import threading
import time
from collections.abc import Iterator

from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from millrace.pipelines.sink import exactly_once
from millrace.pipelines.sink.exactly_once import ExactlyOnce
from millrace.pipelines.sink.transactional_task import BatchWrite
from millrace.pipelines.spark.session import CONSUMER_OPTIONS, session
from millrace.pipelines.topics.declaration import LogTopic

SOURCE, SINK, QUERY = "source", "sink", "copy"
RECORDS_PER_BATCH = 240
POLL_SECONDS = 0.05
SECONDS_PER_ROW = 0.002

# These JVMs are too short-lived for optimized code to pay off.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "600m",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.deploy.maxExecutorRetries": "-1",
}


def copied(records: DataFrame, job: str) -> DataFrame:
    """The job: `map` keeps the order of a key; `deduplicate` has a shuffle and state."""
    values = records.selectExpr("key", "value")
    if job == "deduplicate":
        values = values.dropDuplicates(["value"])
    return values


class SlowWrite(BatchWrite):
    """Writes rows slowly, a few at a time, so that a kill often hits an open transaction."""

    __slots__ = ()

    def task(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        return super().task(slowly(batches))


def slowly(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        yield batch
        time.sleep(batch.num_rows * SECONDS_PER_ROW)


class Requests(threading.Thread):
    """The newest request; None when the input has ended."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.newest: tuple[str, ...] | None = ()

    def run(self) -> None:
        for line in sys.stdin:
            self.newest = tuple(line.split())
        self.newest = None


def main(master: str) -> None:
    vars(exactly_once)["BatchWrite"] = SlowWrite
    spark = session("exactly-once", master=master, settings=SETTINGS)
    requests = Requests()
    requests.start()
    current: tuple[str, ...] = ()
    query: StreamingQuery | None = None
    while (newest := requests.newest) is not None:
        if query is not None and newest != current:
            query.stop()
            query = None
        if query is not None and not query.isActive:
            print(f"restarting after {str(query.exception())[:2000]}", flush=True)
            query = None
        if query is None and newest:
            query = started(spark, *newest)
            current = newest
        time.sleep(POLL_SECONDS)


def started(spark: SparkSession, bootstrap: str, checkpoint: str, job: str) -> StreamingQuery:
    return (
        copied(source(spark, bootstrap), job)
        .writeStream.foreachBatch(ExactlyOnce(QUERY, LogTopic(SINK, "bytes"), bootstrap))
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .start()
    )


def source(spark: SparkSession, bootstrap: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .options(**CONSUMER_OPTIONS)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
