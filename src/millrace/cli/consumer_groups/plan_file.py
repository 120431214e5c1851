"""Plans of new offsets as CSV, which `--export` prints and `--from-file` reads."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from millrace.admin.resets import NewOffsets
from millrace.cli.terminal.errors import CommandError
from millrace.client import TopicPartition

FORMAT = "topic,partition,offset, or group,topic,partition,offset"


def format_plan(plan: Mapping[str, NewOffsets], *, with_groups: bool) -> str:
    """Write a line for each partition; the group comes first if there are several."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for group_id, offsets in plan.items():
        for (topic, index), offset in sorted(offsets.items()):
            lines.writerow([*([group_id] if with_groups else []), topic, index, offset])
    return text.getvalue()


def read_plan(path: Path, group_ids: list[str]) -> dict[str, NewOffsets]:
    """Read the new offsets of each group; lines without a group are about the only group."""
    try:
        lines = [line for line in csv.reader(io.StringIO(path.read_text(encoding="utf-8"))) if line]
    except OSError as error:
        raise CommandError(f"Unable to read file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{path} is not a CSV file: {error}") from error
    plan: dict[str, NewOffsets] = {}
    for number, line in enumerate(lines, 1):
        if len(line) == 3 and len(group_ids) == 1:
            line = [group_ids[0], *line]
        if len(line) != 4 or not line[2].strip().isdecimal() or not line[3].strip().lstrip("-").isdecimal():
            raise CommandError(f"{path}, line {number}: write {FORMAT}")
        group_id, topic, index, offset = (cell.strip() for cell in line)
        plan.setdefault(group_id, {})[TopicPartition(topic, int(index))] = int(offset)
    return plan
