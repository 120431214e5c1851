"""Benchmarks of pipelines on Spark."""
