"""Word count as a topology beside word count in hand-written PySpark."""
