"""A schema registry with Confluent's REST API and store, over the Kafka protocol only."""
