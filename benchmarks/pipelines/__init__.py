"""What pipelines on Spark cost."""
