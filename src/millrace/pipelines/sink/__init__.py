"""Rows into topics: at least once with Spark's own sink, or exactly once in transactions."""
