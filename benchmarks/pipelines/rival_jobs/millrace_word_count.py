"""examples/word_count.py as `millrace run` runs it, over the whole backlog; ends on request."""

import os
import sys
import time
from dataclasses import replace

from examples.word_count import word_count
from sentence import say

from millrace.pipelines import Run, RunOptions, session
from millrace.pipelines.decorator import Delivery

delivery: Delivery = "exactly-once" if os.environ["DELIVERY"] == "exactly-once" else "at-least-once"
spark = session("word-count")
run = Run(
    replace(word_count, delivery=delivery),
    spark,
    os.environ["BOOTSTRAP"],
    RunOptions(checkpoints="checkpoints", available_now=True),
)
run.start()
while not run.ended and not run.queries[0].status["isDataAvailable"]:
    time.sleep(0.01)
say("reading")
run.wait()
say("done")
sys.stdin.read()
spark.stop()
