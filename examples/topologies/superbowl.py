"""Super Bowl hashtags: how often each was used, in a database, exact in spite of crashes.

The counts are state, kept exactly once. The database gets the absolute count of a hashtag, not "one more": a
tuple that is replayed after a crash writes the same row again, which does no harm.

millrace topics --create --topic tweets --partitions 4
python -m examples.tweets | millrace console-producer --topic tweets
millrace topology run examples/topologies/superbowl.py --workers 2
sqlite3 hashtags.sqlite 'SELECT * FROM hashtags ORDER BY count DESC LIMIT 10'

SUPERBOWL_DATABASE=postgresql+psycopg://user@host/name takes another database, by SQLAlchemy's addresses.
"""

import os
from typing import Any

from sqlalchemy import create_engine, text

from millrace.topologies import Bolt, Grouping, LogSpout, StatefulBolt, TaskContext, Topology, Tuple

DATABASE = os.environ.get("SUPERBOWL_DATABASE", "sqlite:///hashtags.sqlite")
TABLE = "CREATE TABLE IF NOT EXISTS hashtags (hashtag TEXT PRIMARY KEY, count BIGINT NOT NULL)"
UPSERT = (
    "INSERT INTO hashtags VALUES (:hashtag, :count) "
    "ON CONFLICT (hashtag) DO UPDATE SET count = excluded.count"
)


class Hashtags(Bolt):
    outputs = ["hashtag"]

    def process(self, tup: Tuple) -> None:
        for word in str(tup["value"].get("text", "")).split():
            if word.startswith("#") and len(word) > 1:
                self.emit([word[1:].lower().rstrip(".,!?")])


class Count(StatefulBolt):
    outputs = ["hashtag", "count"]

    def process(self, tup: Tuple) -> None:
        count = self.state[tup["hashtag"]] = self.state.get(tup["hashtag"], 0) + 1
        self.emit([tup["hashtag"], count])


class Upsert(Bolt):
    """Writes counts to the database, in a thread of its own: the call blocks."""

    def prepare(self, conf: dict[str, Any], context: TaskContext) -> None:
        self._connection = create_engine(DATABASE).connect()
        self._connection.execute(text(TABLE))
        self._connection.commit()

    def process(self, tup: Tuple) -> None:
        self._connection.execute(text(UPSERT), {"hashtag": tup["hashtag"], "count": tup["count"]})
        self._connection.commit()

    def cleanup(self) -> None:
        self._connection.close()


class SuperBowl(Topology):
    guarantee = "exactly-once"
    tweets = LogSpout.spec("tweets", format="json")
    hashtags = Hashtags.spec(inputs=[tweets], par=2)
    count = Count.spec(inputs={hashtags: Grouping.fields("hashtag")}, par=2)
    # Grouped again by hashtag: the counts of one hashtag are written in their order.
    upsert = Upsert.spec(inputs={count: Grouping.fields("hashtag")}, executors=1)
