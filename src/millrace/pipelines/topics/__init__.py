"""Topics as DataFrames: declarations, decoding, encoding, reading, dead letters."""

from millrace.pipelines import old_names

__getattr__ = old_names.attributes("topics")
