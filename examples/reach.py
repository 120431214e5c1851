"""Reach: the number of different people who were exposed to a URL on a social network.

    millrace up
    millrace topology submit examples/reach.py
    curl -d foo.com/blog/1 localhost:3774/drpc/reach

Each call goes through four bolts, over a network of a million edges: the people who tweeted the URL, their
followers, the different ones among them (each task counts its own share), and the sum.
"""

import functools
import random
import zlib

from millrace.drpc import BatchBolt, LinearDRPC, Step
from millrace.topologies import Bolt, Grouping

PEOPLE = 50_000
EDGES = 1_000_000
SHARES = 2
"""The shares of the people, each counted by a task of its own."""
URLS = {f"foo.com/blog/{number}": 20 * number for number in range(1, 21)}
"""The URLs, and the number of people who tweeted each."""


@functools.cache
def followers() -> list[list[int]]:
    """The followers of each person: a million edges, the same in every process."""
    chance = random.Random(2026)
    # A few people have most followers, as on any such network.
    weights = [1 / (rank + 1) ** 0.6 for rank in range(PEOPLE)]
    total = sum(weights)
    found: list[list[int]] = []
    left = EDGES
    for rank, weight in enumerate(weights):
        count = left if rank == PEOPLE - 1 else min(left, round(EDGES * weight / total))
        left -= count
        found.append(chance.choices(range(PEOPLE), k=count))
    return found


def tweeters(url: str) -> list[int]:
    """The people who tweeted a URL."""
    chance = random.Random(zlib.crc32(url.encode()))
    return chance.sample(range(PEOPLE), URLS.get(url, 0))


def reach(url: str) -> int:
    """The same number, computed directly."""
    return len({follower for person in tweeters(url) for follower in followers()[person]})


class GetTweeters(Bolt):
    outputs = ["id", "tweeter"]

    def process(self, tup):
        for person in tweeters(tup["args"]):
            self.emit([tup["id"], person])


class GetFollowers(Bolt):
    outputs = ["id", "followers", "share"]

    def initialize(self, conf, context):
        self.people = followers()

    def process(self, tup):
        # One tuple for each share, not one for each follower: a tuple costs more than a number in it.
        shares: dict[int, list[int]] = {}
        for follower in self.people[tup["tweeter"]]:
            shares.setdefault(follower % SHARES, []).append(follower)
        for share, people in shares.items():
            self.emit([tup["id"], people, share])


class PartialUniquer(BatchBolt):
    outputs = ["id", "count"]

    def begin_batch(self, request):
        self.request = request
        self.people: set[int] = set()

    def process(self, tup):
        self.people.update(tup["followers"])

    def finish_batch(self):
        self.emit([self.request, len(self.people)])


class CountAggregator(BatchBolt):
    outputs = ["id", "reach"]

    def begin_batch(self, request):
        self.request, self.total = request, 0

    def process(self, tup):
        self.total += tup["count"]

    def finish_batch(self):
        self.emit([self.request, self.total])


class Reach(LinearDRPC):
    function = "reach"
    bolts = [
        Step(GetTweeters),
        Step(GetFollowers, par=2),
        Step(PartialUniquer, par=SHARES, grouping=Grouping.fields("id", "share")),
        Step(CountAggregator, grouping=Grouping.fields("id")),
    ]
