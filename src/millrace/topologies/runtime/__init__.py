"""The executing half of topologies. It runs without Spark, and in tests without a log."""
