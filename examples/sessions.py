"""Sessions: the page views of a user, each less than half an hour after the previous one.

    echo '{"page": "/", "user": "ada", "at": "2026-11-16T12:00:00Z"}' |
        millrace console-producer --topic page-views
    millrace run examples/sessions.py
    millrace console-consumer --topic sessions --from-beginning

A session is written once, when no view can extend it any more: that is the meaning of `append`.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import count, max, max_by, min, min_by, session_window

from millrace.pipelines import log, pipeline


@pipeline(
    views=log.json("page-views", "page string, user string, ms double, at timestamp"),
    output=log.json("sessions", key="user"),
    output_mode="append",
)
def sessions(views: DataFrame) -> DataFrame:
    return (
        views.withWatermark("at", "5 minutes")
        .groupBy("user", session_window("at", "30 minutes"))
        .agg(
            min("at").alias("began"),
            max("at").alias("ended"),
            count("*").alias("views"),
            min_by("page", "at").alias("first_page"),
            max_by("page", "at").alias("last_page"),
        )
        .drop("session_window")
    )
