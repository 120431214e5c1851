"""Clicks on advertisements: every click is joined with the display that it followed within ten minutes.

    echo '{"display": "d1", "ad": "tea", "displayed": "2026-11-16T12:00:00Z"}' |
        millrace console-producer --topic ad-displays
    echo '{"click_on": "d1", "user": "ada", "clicked": "2026-11-16T12:00:30Z"}' |
        millrace console-producer --topic clicks
    millrace run examples/ad_clicks.py
    millrace console-consumer --topic ad-clicks --from-beginning

Two streams are joined; the watermarks bound how long one waits for the other.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from millrace.pipelines import log, pipeline


@pipeline(
    displays=log.json("ad-displays", "display string, ad string, page string, displayed timestamp"),
    clicks=log.json("clicks", "click_on string, user string, clicked timestamp"),
    output=log.json("ad-clicks", key="ad"),
)
def ad_clicks(displays: DataFrame, clicks: DataFrame) -> DataFrame:
    return (
        displays.withWatermark("displayed", "1 minute")
        .join(
            clicks.withWatermark("clicked", "1 minute"),
            expr("display = click_on and clicked between displayed and displayed + interval 10 minutes"),
        )
        .select("ad", "page", "user", "displayed", "clicked")
    )
