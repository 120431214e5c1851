"""The functions of the tests: an echo, failures, and a count over several tasks and workers."""

import time

from millrace.drpc import BatchBolt, LinearDRPC, Step
from millrace.topologies import Bolt, Grouping


class Echo(Bolt):
    outputs = ["id", "result"]

    def process(self, tup):
        self.emit([tup["id"], f"{tup['args']}!"])


class Divide(Bolt):
    outputs = ["id", "result"]

    def process(self, tup):
        self.emit([tup["id"], 10 // int(tup["args"])])


class Silent(Bolt):
    outputs = ["id", "result"]

    def process(self, tup):
        pass


class Slow(Bolt):
    outputs = ["id", "result"]

    def process(self, tup):
        time.sleep(float(tup["args"]))
        self.emit([tup["id"], "done"])


class Words(Bolt):
    outputs = ["id", "word"]

    def process(self, tup):
        for word in tup["args"].split():
            if word == "poison":
                raise ValueError("poison")
            self.emit([tup["id"], word])


class Unique(BatchBolt):
    """Counts the words that come to its task, each once."""

    outputs = ["id", "count"]

    def begin_batch(self, request):
        self.request, self.words = request, set()

    def process(self, tup):
        if tup["word"] == "bad":
            raise ValueError("bad")
        self.words.add(tup["word"])

    def finish_batch(self):
        self.emit([self.request, len(self.words)])


class Total(Bolt):
    """Adds the counts of all tasks, with one instance for all calls."""

    outputs = ["id", "total"]

    def initialize(self, conf, context):
        self.totals = {}

    def process(self, tup):
        self.totals[tup["id"]] = self.totals.get(tup["id"], 0) + tup["count"]

    def finished_id(self, request):
        self.emit([request, self.totals.pop(request, 0)])


class Functions(LinearDRPC):
    functions = {
        "echo": [Step(Echo)],
        "divide": [Step(Divide)],
        "silent": [Step(Silent)],
        "slow": [Step(Slow)],
        "distinct": [
            Step(Words, par=2),
            Step(Unique, par=3, grouping=Grouping.fields("id", "word")),
            Step(Total, par=2, grouping=Grouping.fields("id")),
        ],
    }
