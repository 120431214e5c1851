"""A generated stream of tweets, for the demo and for experiments. The same seed gives the same tweets.

It resembles the real thing: a few hashtags and users make up much of it, a long tail the rest; the rate
varies, and every few seconds a new trend rises and fades.

    python -m examples.tweets --rate 100 | millrace console-producer --topic tweets
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, count, takewhile

STEP_SECONDS = 0.05
EARLY_SECONDS = 0.005

NAMES = (
    *("ada", "alan", "grace", "linus", "barbara", "donald", "edsger", "frances", "jean", "ken", "margaret"),
    *("niklaus", "radia", "tim", "zoë", "美咲", "олег"),
)
USER_COUNT = 50_000

PLACES = ("Tokyo", "Lagos", "Paris", "İstanbul", "Mumbai", "서울", "SãoPaulo", "Київ", "Nairobi", "München")
THINGS = (
    *("coffee", "cats", "music", "football", "rain", "cooking", "python", "gaming", "art", "books"),
    *("running", "travel", "tea", "jazz", "bikes"),
)
EVERGREENS = (
    *("love", "photo", "日本", "monday", "nature", "новости", "food", "style", "vida", "tech", *THINGS),
    *(f"{thing}In{place}" for place in PLACES for thing in THINGS),
)
EVENTS = (
    *("Goal", "Blackout", "MarsLanding", "RedCard", "地震", "PlotTwist", "NewAlbum", "Eclipse", "SnowDay"),
    *("BreakingNews", "первыйСнег", "FinalEpisode", "Aurora", "Penalty", "Élections", "PandaTwins", "桜"),
    *("Comeback", "HalfTime", "MeteorShower", "TrainDelay", "WorldRecord", "Rocket", "GoldMedal", "Encore"),
)

PHRASES = (
    "can't stop thinking about {}",
    "{} again. Why is it always {}?",
    "who else is up for {} tonight?",
    "my neighbour just explained {} to me for an hour",
    "{} > everything else",
    "¿alguien más con {}? 🙋",
    "c'est ça, {} 🎉",
    "今日も {} と {}",
    "просто {}, и всё",
    "they never told me about {} 😮",
    "{} 👀 {}",
    "good morning 🌅",
    "I should really go to bed",
)


@dataclass(frozen=True, slots=True)
class Tweet:
    """A tweet; `at` is in seconds since 1970."""

    user: str
    text: str
    at: float
    hashtags: tuple[str, ...]

    def json(self) -> str:
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"user": self.user, "text": self.text, "at": at}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Trend:
    """A hashtag that comes up, is everywhere within seconds, and wears off."""

    hashtag: str
    start: float
    rise: float
    fall: float
    peak: float

    def share(self, moment: float) -> float:
        """The part of all hashtags that is this one."""
        age = moment - self.start
        return self.peak * min(age / self.rise, math.exp((self.rise - age) / self.fall))


def trends(chance: random.Random) -> Iterator[Trend]:
    """Events, one after the other, without end."""
    moment = -8.0
    while True:
        for name in chance.sample(EVENTS, len(EVENTS)):
            rise, fall = chance.uniform(2, 6), chance.uniform(3, 9)
            yield Trend(f"#{name}", moment, rise, fall, peak=min(0.2, 0.04 * chance.paretovariate(1.3)))
            moment += chance.expovariate(1 / 2.5)


def tweets(rate: float, *, seed: int = 7, start: float = 0.0) -> Iterator[Tweet]:
    """Yield tweets endlessly, in order of time, at about this rate per second."""
    chance = random.Random(seed)
    users = [f"{chance.choice(NAMES)}_{number}" for number in range(USER_COUNT)]
    user_weights = list(accumulate(_zipf(USER_COUNT, 0.8)))
    evergreens = [f"#{tag}" for tag in EVERGREENS]
    evergreen_weights = _zipf(len(evergreens), 0.8)
    coming = trends(random.Random(seed))
    current: list[Trend] = []
    following = next(coming)
    due = 0.0
    for step in count():
        moment = step * STEP_SECONDS
        while following.start <= moment:
            current.append(following)
            following = next(coming)
        current = [trend for trend in current if moment < trend.start + trend.rise + 6 * trend.fall]
        shares = [trend.share(moment) for trend in current]
        rest = max(0.2, 1 - sum(shares))
        hashtags = evergreens + [trend.hashtag for trend in current]
        weights = list(accumulate([rest * weight for weight in evergreen_weights] + shares))
        due += rate * STEP_SECONDS * (1 + 0.15 * math.sin(moment / 3) + 0.1 * math.sin(moment * 1.3))
        number, due = int(due), due - int(due)
        for index, user in enumerate(chance.choices(users, cum_weights=user_weights, k=number)):
            phrase = chance.choice(PHRASES)
            drawn = tuple(chance.choices(hashtags, cum_weights=weights, k=phrase.count("{}")))
            at = start + moment + index / number * STEP_SECONDS
            yield Tweet(user, phrase.format(*drawn), round(at, 3), drawn)


def paced(stream: Iterator[Tweet]) -> Iterator[Tweet]:
    """Yield each tweet at its time, or a little early: several at once cost less than one by one."""
    for tweet in stream:
        wait = tweet.at - time.time()
        if wait > EARLY_SECONDS:
            time.sleep(wait)
        yield tweet


def _zipf(size: int, exponent: float) -> list[float]:
    weights = [rank**-exponent for rank in range(1, size + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=100, help="tweets per second (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the tweets (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="duration (default: until Ctrl-C)")
    options = parser.parse_args()
    start = time.time()
    stream = tweets(options.rate, seed=options.seed, start=start)
    with suppress(KeyboardInterrupt, BrokenPipeError):
        for tweet in paced(takewhile(lambda tweet: tweet.at < start + options.seconds, stream)):
            print(tweet.json(), flush=True)


if __name__ == "__main__":
    main()
