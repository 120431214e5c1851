"""millrace and Apache Kafka under the same load on the same machine: `python -m benchmarks --help`."""
