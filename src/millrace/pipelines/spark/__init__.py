"""Spark itself: the session, its JVM, query plans, files and Python workers."""
