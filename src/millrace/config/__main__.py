"""Prints the configuration reference."""

from .reference import render

print(render(), end="")
