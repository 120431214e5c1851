"""Trending hashtags: how often each was tweeted in the last half minute, updated every five seconds.

    python -m examples.tweets --rate 100 | millrace console-producer --topic tweets
    millrace run examples/trending.py
    millrace console-consumer --topic trending --from-beginning

`make demo` runs it on its own stream and shows the top ten.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import window

from millrace.pipelines import log, pipeline


@pipeline(
    tweets=log.json("tweets", "user string, text string, at timestamp"),
    output=log.json("trending", key="hashtag"),
    # A count replaces the previous one, so a duplicate does no harm, and at-least-once is faster.
    delivery="at-least-once",
)
def trending(tweets: DataFrame) -> DataFrame:
    return (
        tweets.selectExpr(r"explode(regexp_extract_all(text, '(?U)#\\w+', 0)) as hashtag", "at")
        .withWatermark("at", "10 seconds")
        .groupBy(window("at", "30 seconds", "5 seconds"), "hashtag")
        .count()
    )
