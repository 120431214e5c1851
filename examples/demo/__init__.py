"""The demo: tweets in the log, hashtags counted by Spark, and a live top ten. `make demo`."""
