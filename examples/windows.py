"""Windows: how often each page was viewed in every minute, and in the last five minutes at each full one.

    millrace run examples/windows.py
    millrace console-consumer --topic views-by-minute --from-beginning
    millrace console-consumer --topic views-of-five-minutes --from-beginning

A view counts for the time at which it happened, not at which it arrives. The watermark is how long a window
waits for views that are late: it is written once, when nothing can change it any more, and views that are
later than that are left out.
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


def counted(views: DataFrame, length: str, every: str) -> DataFrame:
    """The views of each page in windows of this length, of which one begins this often."""
    return (
        views.groupBy(window("at", length, every), "page")
        .count()
        .selectExpr("page", "window.start as since", "window.end as until", "count as views")
    )
