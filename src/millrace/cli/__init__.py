"""The `millrace` command: Kafka's own tools under their own flags, and what runs a broker."""

from millrace.cli.terminal.program import millrace


def main() -> None:
    """Entry point of the `millrace` script."""
    millrace.main(prog_name="millrace")


__all__ = ["main", "millrace"]
