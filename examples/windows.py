"""Windows: the views of each page per minute, and, every minute, in the last five minutes.

    millrace run examples/windows.py
    millrace console-consumer --topic views-by-minute --from-beginning
    millrace console-consumer --topic views-of-five-minutes --from-beginning

A view counts for the time at which it happened, not at which it arrives. The watermark bounds how long a
window waits for late views. A window is written once, when nothing can change it any more; views that arrive
even later are dropped.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import window

from millrace.pipelines import log, pipeline


@pipeline(
    views=log.json("page-views", "page string, user string, ms double, at timestamp"),
    output={
        "minutes": log.json("views-by-minute", key="page"),
        "five_minutes": log.json("views-of-five-minutes", key="page"),
    },
    output_mode="append",
)
def windows(views: DataFrame) -> dict[str, DataFrame]:
    views = views.withWatermark("at", "30 seconds")
    return {
        "minutes": counted(views, "1 minute", "1 minute"),
        "five_minutes": counted(views, "5 minutes", "1 minute"),
    }


def counted(views: DataFrame, length: str, interval: str) -> DataFrame:
    """Count the views of each page in windows of this length, one of which starts at each interval."""
    return (
        views.groupBy(window("at", length, interval), "page")
        .count()
        .selectExpr("page", "window.start as since", "window.end as until", "count as views")
    )
