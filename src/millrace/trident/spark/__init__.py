"""Trident on Spark: each micro-batch is a static DataFrame, and operators are steps over it."""
