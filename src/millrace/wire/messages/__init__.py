"""Declarations of the Kafka protocol's messages, one file per API."""
