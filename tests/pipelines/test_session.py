from confluent_kafka import Producer
from pyspark.sql import SparkSession

from millrace.testing import Broker


def test_reads_the_log_without_any_setting_by_the_user(spark: SparkSession, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("greetings", "hello")
    producer.flush()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "greetings")
        .load()
        .selectExpr("cast(value as string) as value")
        .collect()
    )
    assert [row.value for row in rows] == ["hello"]
