"""Old module names of this package. They work for one more release, with a DeprecationWarning.

`from millrace.pipelines.running import Run` finds `millrace.pipelines.run.lifecycle.Run`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGE = "millrace.pipelines"

# Old module: new module: the names that moved there; "Old=New" where the name changed too.
MOVED: Mapping[str, Mapping[str, str]] = {
    "bar": {
        "console.progress_bar": "Bar=ProgressBar Extent Shown=Display size",
    },
    "batch_progress": {
        "console.job_progress": "followed records_read",
    },
    "checkpoint": {
        "run.checkpoint": (
            "Fingerprint Lock check directory exists incompatible last_offsets location lock remove"
        ),
    },
    "codecs": {
        "topics.decoding": "decode failure malformed newest",
        "topics.encoding": "encode",
    },
    "dead_letters": {
        "topics.dead_letters": "batch letters output stream wanted",
    },
    "declarative": {
        "declarative.project": "find_project run_project",
    },
    "declarative_process": {
        "declarative.process": "main run",
    },
    "declarative_progress": {
        "declarative.flow_progress": "commit flows",
    },
    "exactly_once": {
        "sink.exactly_once": "ExactlyOnce client_settings committed=committed_batches marks",
    },
    "explaining": {
        "console.explanation": "explanation spark_plan",
    },
    "failures": {
        "run.failures": "cause explained first_line is_about_connection is_refusal own_traceback text_of",
    },
    "files": {
        "spark.directory": "Directory local_path",
    },
    "foreground": {
        "console.foreground": "Interrupts follow interrupts",
    },
    "gateway": {
        "spark.gateway": "jvm launch",
    },
    "history": {
        "history.batch": "Summary run",
        "history.range": "Bound Offsets Span extent moment settle",
        "run.options": "redirected",
    },
    "log": {
        "topics.declaration": (
            "DeadLetters Format GroupOffsets LogTopic METADATA Malformed Metadata Start bytes"
            " dead_letters group json table text"
        ),
    },
    "merging": {
        "views.merge": "Layer Merge Row Rule key_text",
    },
    "modes": {
        "run.execution_mode": "Choice=ExecutionMode choose needed_slots refused=after_refusal slots_for",
    },
    "offsets": {
        "kafka.offsets": (
            "Offsets behind cluster_id end_offsets group_offsets matching offsets_at parse partitions"
            " stable_offsets start_offsets topic_ids"
        ),
        "kafka.client": "admin",
        "kafka.group_commits": "Commits=GroupCommits",
        "run.progress_listener": "Progress=ProgressListener reached",
    },
    "outputs": {
        "replay.output_pointer": (
            "Building Output TOPIC Version current current_version everything=all_outputs publish"
        ),
        "kafka.records": "now_ms",
    },
    "pipeline": {
        "decorator": "Delivery Mode ONLY_OUTPUT OutputMode Outputs Pipeline pipeline",
        "job_file": "load",
    },
    "plans": {
        "spark.query_plan": "Node Plan Stateful items kind nodes stateful",
    },
    "queries": {
        "run.query": "Query end_after_batch process_all",
    },
    "query_settings": {
        "run.query_settings": "applied",
    },
    "reading": {
        "topics.reading": (
            "Exact=ExactOffsets batch explain records source_options stored_records stream table"
        ),
        "topics.names": "topics=topic_names",
    },
    "replay": {
        "replay.new_version": "Replay",
    },
    "running": {
        "run.old_run": "Run=OldRun",
    },
    "serving": {
        "views.served_view": "Served=ServedView TOPIC",
        "views.generation": "Cut Generation",
    },
    "spark_session": {
        "spark.session": (
            "CONSUMER_OPTIONS MASTER_VARIABLE cores is_running local_master require_java session"
        ),
    },
    "status": {
        "console.status": "Meter Status number",
    },
    "takeover": {
        "replay.takeover": "Stoppable Takeover is_running presence_group",
    },
    "topics": {
        "kafka.topic_admin": "COMPACTED delete delete_groups ensure ensure_like exists",
        "kafka.records": "latest reader=committed_consumer to_the_end=read_to_end transaction",
    },
    "transactional_task": {
        "sink.transactional_task": (
            "Failed=TransactionFailed TaskProducer Write=BatchWrite keep require_whole_input take=acquire"
        ),
    },
    "transactions": {
        "sink.batch_mark": "Mark=BatchMark commits_group transactional_id",
        "sink.producer": (
            "connection=connection_settings new_producer patiently=retry settled=without_errors take_over"
        ),
    },
    "view_http": {
        "views.http_server": "http_server",
    },
    "views": {
        "views.view": "View load_views",
    },
    "workers": {
        "spark.workers": "send_whole=pickle_by_value share_imports task_number",
    },
    "writing": {
        "sink.at_least_once": "at_least_once=write_stream sink_options write_batch",
    },
}

# Packages that took over the name of an old module; they look its contents up themselves.
PACKAGES = frozenset({"declarative", "history", "replay", "topics", "views"})


def install() -> None:
    """Let Python import the old modules."""
    for name in MOVED:
        if name not in PACKAGES:
            module = ModuleType(f"{PACKAGE}.{name}")
            vars(module)["__getattr__"] = attributes(name)
            sys.modules[module.__name__] = module


def attributes(module: str) -> Callable[[str], Any]:
    """A `__getattr__` that finds the names of an old module."""
    places = {
        old: (place, new or old)
        for place, names in MOVED[module].items()
        for old, _, new in (name.partition("=") for name in names.split())
    }

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {PACKAGE}.{module} has no attribute {name!r}")
        place, new = places[name]
        warnings.warn(
            f"{PACKAGE}.{module}.{name} is now {PACKAGE}.{place}.{new}; the next release drops the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(f"{PACKAGE}.{place}"), new)

    return find
