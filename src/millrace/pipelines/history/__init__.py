"""A pipeline as a batch over a range of the log."""

from millrace.pipelines import old_names

__getattr__ = old_names.attributes("history")
