"""Latency and rate of DRPC calls."""
