"""Figures on the terminal and in docs/benchmarks.md."""
