"""Orders from the log: all of them in a table, the large ones written back to the log."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines import declarative, log

spark = SparkSession.active()

ORDERS = log.json("orders", "number int, customer string, amount double, at timestamp")
LARGE = log.json("large-orders", key="customer")


@dp.table(comment="Every order, unchanged.")
def orders() -> DataFrame:
    return declarative.stream(ORDERS)


dp.create_sink("large_orders", "kafka", declarative.sink_options(LARGE))


@dp.append_flow(target="large_orders")
def to_the_log() -> DataFrame:
    return declarative.encode(spark.readStream.table("orders").where("amount >= 1000"), LARGE)
