"""Workers as tasks of a Spark job. The only room of topologies that imports PySpark."""
