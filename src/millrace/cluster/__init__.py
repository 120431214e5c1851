"""Which brokers, topics, partitions and configs exist."""
