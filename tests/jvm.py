"""Options of JVMs that live for one test: they end before optimizing compilation pays off."""

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The smallest heap that starts quickly.
BROKER = ("-Xmx512M", *QUICK)
SPARK = {"spark.driver.extraJavaOptions": " ".join(QUICK), "spark.executor.extraJavaOptions": " ".join(QUICK)}
ENVIRONMENT = {"JAVA_TOOL_OPTIONS": " ".join(QUICK)}
