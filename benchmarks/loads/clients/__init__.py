"""Clients of loads: librdkafka without Python objects, and prepared frames over raw sockets."""
