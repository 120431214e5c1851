"""The generated stream of tweets."""

import json
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise, takewhile
from pathlib import Path

from examples.tweets import tweets

ROOT = Path(__file__).parents[2]


def test_seed_determines_the_tweets() -> None:
    assert list(islice(tweets(1000, seed=3), 500)) == list(islice(tweets(1000, seed=3), 500))
    assert list(islice(tweets(1000, seed=3), 500)) != list(islice(tweets(1000, seed=4), 500))


def test_rate_holds_on_average_and_hashtags_are_those_of_the_text() -> None:
    minute = list(takewhile(lambda tweet: tweet.at < 60, tweets(500)))
    assert 0.9 < len(minute) / (500 * 60) < 1.1
    assert all(before.at <= after.at for before, after in pairwise(minute))
    for tweet in minute:
        assert tweet.text.count("#") == len(tweet.hashtags)
        assert all(hashtag in tweet.text for hashtag in tweet.hashtags)


def test_few_hashtags_dominate_and_trends_rise_and_fade() -> None:
    minute = list(takewhile(lambda tweet: tweet.at < 60, tweets(500)))
    tops = []
    for start in (0, 15, 30, 45):
        count = Counter(tag for tweet in minute if start <= tweet.at < start + 15 for tag in tweet.hashtags)
        tops.append({hashtag for hashtag, _ in count.most_common(10)})
        assert sum(number for _, number in count.most_common(10)) > 0.3 * count.total()
        assert len(count) > 100
    assert all(before != after for before, after in pairwise(tops))
    assert set.intersection(*tops)


def test_command_prints_json_lines_for_its_duration() -> None:
    command = [sys.executable, "-m", "examples.tweets", "--rate", "200", "--seconds", "0.3"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    lines = [json.loads(line) for line in printed.decode().splitlines()]
    assert 30 < len(lines) < 100
    assert all(line.keys() == {"user", "text", "at"} for line in lines)
