"""Trident's word count: exact counts of words in a state, and a query over it.

    millrace up
    millrace topics --create --topic sentences
    echo "to be or not to be" | millrace console-producer --topic sentences
    millrace trident run examples/trident/word_count.py --once
    millrace trident get examples/trident/word_count.py word_counts be

    millrace topology submit examples/trident/word_count.py
    millrace drpc words "to be"

The last command prints [[4]]: how often these words have come, in sum. Split needs no ack, and no crash
counts a word twice: a batch that comes again changes nothing.
"""

import os
import tempfile
from pathlib import Path

from millrace.pipelines import log
from millrace.trident import Count, FilterNull, MapGet, Split, Sum, TridentTopology, state

# The whole path: submitted topologies run in other directories.
COUNTS = os.environ.get("WORD_COUNTS", Path(tempfile.gettempdir()) / "word-counts.db")

topology = TridentTopology("word-count")

word_counts = (
    topology.new_stream("sentences", log.text("sentences"))
    .each("value", Split(), "word")
    .group_by("word")
    .persistent_aggregate(state.sqlite(COUNTS, "word_counts"), Count(), "count")
)

# Each batch writes the counts that it has changed.
word_counts.new_values_stream().to_log(log.json("word-counts", key="word"))

# A call of the function `words` asks for the counts of its words, and gets their sum.
(
    topology.new_drpc_stream("words")
    .each("args", Split(), "word")
    .group_by("word")
    .state_query(word_counts, "word", MapGet(), "count")
    .each("count", FilterNull())
    .aggregate("count", Sum(), "sum")
)
Queries = topology.drpc_topology()
