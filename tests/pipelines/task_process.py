"""A Python worker without Spark around it, to be killed: an order per line on its input, an outcome per line.

It runs the tasks of the exactly-once sink as they are, keeps its producers from task to task as they do in
Spark's workers, and takes its time between rows.
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
    # There is no Spark that could say so; whoever gives the orders gives them whole.
    transactional_task.require_whole_input = lambda: None
    for line in sys.stdin:
        order = json.loads(line)
        write = BatchWrite(
            order["query"], order["topic"], client, order["batch"], order["tasks"], "checkpoint"
        )
        try:
            [outcome] = write._outcome(order["task"], slowly(order["rows"], order["seconds"])).to_pylist()
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
