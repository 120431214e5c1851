"""A newsfeed: the news of a member go to everyone who follows the member at that moment.

    echo 'ada>bob|{"reader": "ada", "member": "bob"}' |
        millrace console-producer --topic follows --property parse.key=true --property key.separator='|'
    echo '{"member": "bob", "what": "changed jobs"}' | millrace console-producer --topic news
    millrace run examples/newsfeed.py
    millrace console-consumer --topic newsfeed --from-beginning --property print.key=true

The topic `follows` is a table: the newest record of each key ("ada>bob") counts, and a record without a value
deletes the key.
"""

from pyspark.sql import DataFrame

from millrace.pipelines import log, pipeline


@pipeline(
    news=log.json("news", "member string, what string, at timestamp"),
    follows=log.table("follows", "reader string, member string", key="follow"),
    output=log.json("newsfeed", key="reader"),
)
def newsfeed(news: DataFrame, follows: DataFrame) -> DataFrame:
    return news.join(follows, "member").select("reader", "member", "what", "at")
