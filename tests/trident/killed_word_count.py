"""The word count of the kill tests: its state is declared by the environment."""

import os

from millrace.pipelines import log
from millrace.trident import Count, Split, TridentTopology, state


def declared(store: str, place: str) -> state.StateSpec:
    match store:
        case "sqlite":
            return state.sqlite(place, "words")
        case "postgresql":
            return state.postgresql(place, "words")
        case "redis":
            return state.redis(place, "words")
    return state.log(place)


words = declared(os.environ.get("STORE", "log"), os.environ.get("PLACE", "words"))

# Small batches: many moments at which a kill may hit.
topology = TridentTopology("killed", records_per_batch=60)
(
    topology.new_stream("sentences", log.text("sentences"))
    .each("value", Split(), "word")
    .group_by("word")
    .persistent_aggregate(words, Count(), "count")
    .new_values_stream()
    .to_log(log.json("changes", "word string, count bigint", key="word"))
)
