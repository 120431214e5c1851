"""Metadata of the cluster: brokers, topics, partitions and configs."""
