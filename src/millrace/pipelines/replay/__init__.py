"""A new version of a pipeline's output, built beside the running one (Kappa)."""

from millrace.pipelines import old_names

__getattr__ = old_names.attributes("replay")
