"""`millrace producer-perf-test`."""

from millrace.cli.producer_perf_test.command import command

__all__ = ["command"]
