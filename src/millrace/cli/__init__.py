"""The `millrace` command: Kafka's tools with Kafka's flags, and commands that run a broker or a pipeline."""

from millrace.cli.terminal.program import millrace


def main() -> None:
    """Entry point of the `millrace` script."""
    millrace.main(prog_name="millrace")


__all__ = ["main", "millrace"]
