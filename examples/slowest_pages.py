"""The five slowest pages of the last minute, every ten seconds, each with its mean time in milliseconds.

    echo '{"page": "/cart", "ms": 840, "at": "2026-11-16T12:00:00Z"}' |
        millrace console-producer --topic page-views
    millrace run examples/slowest_pages.py
    millrace console-consumer --topic slowest-pages --from-beginning

Each window is written once, when no more views can arrive for it: that is the meaning of `append`.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import avg, max_by, struct, window

from millrace.pipelines import log, pipeline


@pipeline(
    views=log.json("page-views", "page string, user string, ms double, at timestamp"),
    output=log.json("slowest-pages"),
    output_mode="append",
)
def slowest_pages(views: DataFrame) -> DataFrame:
    pages = (
        views.withWatermark("at", "10 seconds")
        .groupBy(window("at", "1 minute", "10 seconds"), "page")
        .agg(avg("ms").alias("ms"))
    )
    return pages.groupBy("window").agg(max_by(struct("page", "ms"), "ms", 5).alias("slowest"))
