"""The log behind the MQTT server: writes, reads and topics, over the Kafka protocol."""
