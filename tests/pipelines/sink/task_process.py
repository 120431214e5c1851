"""A Python worker without Spark, to be killed: a request per line on stdin, an outcome per line on stdout.

It runs the real tasks of the exactly-once sink, keeps its producers from task to task as Spark's workers do,
and pauses between rows.
"""

import json
import random
import sys
import time
from collections.abc import Iterator

import pyarrow

from millrace.pipelines.sink import transactional_task
from millrace.pipelines.sink.transactional_task import BatchWrite, TransactionFailed

ROWS_PER_CHUNK = 5


def main(bootstrap_settings: str) -> None:
    client = json.loads(bootstrap_settings)
    # Only Spark sends the marker after the last row; requests are complete here.
    transactional_task.require_whole_input = lambda: None
    for line in sys.stdin:
        request = json.loads(line)
        write = BatchWrite(
            request["query"], request["topic"], client, request["batch"], request["tasks"], "checkpoint"
        )
        try:
            [outcome] = write._outcome(
                request["task"], slowly(request["rows"], request["seconds"])
            ).to_pylist()
        except TransactionFailed as failure:
            outcome = {"lost": str(failure)}
        print(json.dumps(outcome), flush=True)


def slowly(rows: list[list[str]], seconds: float) -> Iterator[pyarrow.RecordBatch]:
    for start in range(0, len(rows), ROWS_PER_CHUNK):
        chunk = rows[start : start + ROWS_PER_CHUNK]
        yield pyarrow.RecordBatch.from_pydict(
            {"key": [key for key, _ in chunk], "value": [value for _, value in chunk]}
        )
        time.sleep(random.uniform(0, 2 * seconds * len(chunk) / len(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
