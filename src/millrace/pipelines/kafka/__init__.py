"""Requests of pipelines to the broker, by the Kafka protocol: offsets, topics, small records."""
