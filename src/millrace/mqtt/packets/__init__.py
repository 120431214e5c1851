"""The control packets of MQTT 3.1.1 and 5 as bytes and as values; no I/O."""
