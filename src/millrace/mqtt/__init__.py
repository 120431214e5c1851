"""An MQTT 3.1.1 and 5 server in front of the log, which it knows by the Kafka protocol only."""
