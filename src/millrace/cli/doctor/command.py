"""`millrace doctor`: checks this machine, and says how to fix what is wrong."""

import sys
from pathlib import Path

import click

from millrace.cli.terminal.options import KafkaCommand


@click.command("doctor", cls=KafkaCommand)
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("millrace-data"), show_default=True)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="The broker's port."
)
def command(*, data_dir: Path, port: int) -> int:
    """Check this machine, and say how to fix what is wrong."""
    from millrace.cli.doctor.checks import Verdict, examine

    colours = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
    findings = examine(data_dir.expanduser().absolute(), port)
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        verdict = click.style(f"{finding.verdict.value:<4}", fg=colours[finding.verdict], bold=True)
        remedy = f"\n{'':{width + 7}}{click.style(finding.remedy, dim=True)}" if finding.remedy else ""
        click.echo(f"{verdict}  {finding.what:<{width}} {finding.state}{remedy}")
    failed = sum(finding.verdict is Verdict.FAIL for finding in findings)
    if failed:
        click.echo(f"{failed} to fix before a broker can run", file=sys.stderr)
    return 1 if failed else 0
