"""What pipelines ask of the broker, by the Kafka protocol: offsets, topics, small records."""
