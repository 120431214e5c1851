"""The platform at work: tweets into the log, hashtags counted by Spark, a top ten that moves. `make demo`."""
