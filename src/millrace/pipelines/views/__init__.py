"""A served view that merges the results of a batch and a stream (Lambda)."""

from millrace.pipelines import old_names

__getattr__ = old_names.attributes("views")
