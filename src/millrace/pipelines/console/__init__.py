"""Pipelines on a terminal: foreground runs, status lines, progress bars, explanations."""
