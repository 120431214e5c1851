"""Benchmarks with a table of their own."""
