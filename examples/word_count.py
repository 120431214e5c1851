"""Word count: every word of the topic `sentences`, and how often it has occurred so far.

    echo "the cow jumped over the moon" | millrace console-producer --topic sentences
    millrace run examples/word_count.py
    millrace console-consumer --topic words --from-beginning

When a word occurs again, it is written again with its new count.
"""

from pyspark.sql import DataFrame

from millrace.pipelines import log, pipeline


@pipeline(
    sentences=log.text("sentences"),
    output=log.json("words", key="word"),
)
def word_count(sentences: DataFrame) -> DataFrame:
    return (
        sentences.selectExpr(r"explode(regexp_extract_all(lower(value), '(?U)\\w+', 0)) as word")
        .groupBy("word")
        .count()
    )
