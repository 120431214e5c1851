"""The trending example: Spark counts the same as a loop over the tweets."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import takewhile
from typing import Any

from examples.trending import trending
from examples.tweets import tweets

LENGTH, SLIDE = 30, 5


def test_hashtags_are_counted_in_every_window_they_belong_to(run_pipeline: Callable[..., Any]) -> None:
    noon = datetime.fromisoformat("2026-11-16T12:00:00+00:00").timestamp()
    stream = list(takewhile(lambda tweet: tweet.at < noon + 20, tweets(50, seed=1, start=noon)))
    expected = Counter(
        (start, hashtag)
        for tweet in stream
        for start in range(int(tweet.at) // SLIDE * SLIDE, int(tweet.at) - LENGTH, -SLIDE)
        for hashtag in tweet.hashtags
    )
    output = run_pipeline(trending, tweets=[json.loads(tweet.json()) for tweet in stream])
    counted = {
        (datetime.fromisoformat(value["window"]["start"]).timestamp(), value["hashtag"]): value["count"]
        for value in output
    }
    assert counted == expected
    assert {"#日本", "#новости"} <= {hashtag for _, hashtag in counted}
