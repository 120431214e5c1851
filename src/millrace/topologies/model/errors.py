"""Errors that a topology's author can fix."""


class TopologyError(Exception):
    """A topology, a component or a configuration is wrong; the text says what is wrong and what to do."""
