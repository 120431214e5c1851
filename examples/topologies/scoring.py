"""Scored tweets: positive, negative or neutral. Two bolts look for words side by side, a third one joins.

millrace topics --create --topic tweets --partitions 4
millrace topology run examples/topologies/scoring.py --workers 2
echo '{"id": 1, "text": "what a great win"}' | millrace console-producer --topic tweets
millrace console-consumer --topic scores --from-beginning
"""

import re
from typing import ClassVar

from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, StatefulBolt, Topology, Tuple

STOP = "a an and are be but is it of on or so that the this to was what with"
GOOD = "amazing best good great happy love nice thanks win wonderful"
BAD = "angry awful bad hate horrible lose sad terrible ugly worst"
STOP_WORDS, POSITIVE_WORDS, NEGATIVE_WORDS = (frozenset(words.split()) for words in (STOP, GOOD, BAD))
WORD = re.compile(r"[\w']+")


class Clean(Bolt):
    """Words that carry a meaning, in lower case. A tweet without a text is left out."""

    outputs = ["id", "words"]

    def process(self, tup: Tuple) -> None:
        tweet = tup["value"]
        words = [word for word in WORD.findall(str(tweet.get("text", "")).lower()) if word not in STOP_WORDS]
        if words and "id" in tweet:
            self.emit([tweet["id"], words])


class Share(Bolt):
    """The share of a tweet's words that are in a list."""

    outputs = ["id", "kind", "share"]
    kind: ClassVar[str]
    listed: ClassVar[frozenset[str]]

    def process(self, tup: Tuple) -> None:
        words = tup["words"]
        self.emit([tup["id"], self.kind, sum(word in self.listed for word in words) / len(words)])


class Positive(Share):
    kind, listed = "positive", POSITIVE_WORDS


class Negative(Share):
    kind, listed = "negative", NEGATIVE_WORDS


class Join(StatefulBolt):
    """Waits for both shares of a tweet. The first of them is state, so it survives a crash."""

    outputs = ["id", "positive", "negative"]

    def process(self, tup: Tuple) -> None:
        shares = self.state.pop(tup["id"], {}) | {tup["kind"]: tup["share"]}
        if len(shares) < 2:
            self.state[tup["id"]] = shares
        else:
            self.emit([tup["id"], shares["positive"], shares["negative"]])


class Score(Bolt):
    outputs = ["id", "score"]

    def process(self, tup: Tuple) -> None:
        difference = tup["positive"] - tup["negative"]
        self.emit([tup["id"], "positive" if difference > 0 else "negative" if difference < 0 else "neutral"])


class Scoring(Topology):
    guarantee = "exactly-once"
    tweets = LogSpout.spec("tweets", format="json")
    clean = Clean.spec(inputs=[tweets], par=2)
    positive = Positive.spec(inputs=[clean])
    negative = Negative.spec(inputs=[clean])
    join = Join.spec(
        inputs={positive: Grouping.fields("id"), negative: Grouping.fields("id")},
        par=2,
    )
    score = Score.spec(inputs=[join])
    out = LogBolt.spec("scores", inputs=[score], key="id")
