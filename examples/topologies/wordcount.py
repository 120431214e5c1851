"""Words counted by a topology: sentences in, the count of each word out, exactly once.

millrace topics --create --topic sentences --partitions 4
echo 'the cow jumped over the moon' | millrace console-producer --topic sentences
millrace topology run examples/topologies/wordcount.py --workers 2
millrace console-consumer --topic counts --from-beginning
"""

from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, StatefulBolt, Topology, Tuple


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup["value"].split():
            self.emit([word])


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def process(self, tup: Tuple) -> None:
        count = self.state[tup["word"]] = self.state.get(tup["word"], 0) + 1
        self.emit([tup["word"], count])


class WordCount(Topology):
    guarantee = "exactly-once"
    sentences = LogSpout.spec("sentences", par=2)
    split = Split.spec(inputs=[sentences], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=4)
    out = LogBolt.spec("counts", inputs=[count], key="word", par=2)
