"""Partitions as clients see them: appends, reads up to the high watermark, and requests that wait."""
