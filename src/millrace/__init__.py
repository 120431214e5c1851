"""millrace: a streaming data platform in Python around a log that speaks the Apache Kafka protocol."""

__version__ = "0.1.0"
