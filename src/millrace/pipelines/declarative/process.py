"""The process of a declarative project: a Spark session with a Connect server, and its client."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from millrace.pipelines.declarative import flow_progress
from millrace.pipelines.declarative.project import BOOTSTRAP_SETTING, INTERRUPTED
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.run import failures
from millrace.pipelines.spark.directory import Directory
from millrace.pipelines.spark.session import session
from millrace.ports import free_port

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.sql import SparkSession

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
HOST = "localhost"


def main() -> int:
    """Run the project that the parent names on standard input; report an error to it in one line."""
    request = json.loads(sys.stdin.readline())
    # PySpark warns about pandas, which no project can change.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run(request)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if "MILLRACE_DEBUG" in os.environ:
            raise
        with os.fdopen(int(sys.argv[1]), "w") as report:
            name = Path(request["spec"]).parent.name
            report.write(str(failures.explained(error, name, request["bootstrap"])))
        return 1
    return 0


def run(request: Mapping[str, Any]) -> None:
    """Run the project once: read its spec and definitions, pass the graph to Spark, print the events."""
    file = Path(request["spec"])
    spec = _spec(file)
    storage = _storage(file, spec)
    settings = {
        **_catalog(storage),
        **request["conf"],
        **spec.configuration,
        BOOTSTRAP_SETTING: request["bootstrap"],
    }
    with _connected(spec.name, request["master"], settings) as (server, spark):
        from pyspark.pipelines.cli import register_definitions
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

        graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
        # Modules next to the spec can be imported.
        sys.path.insert(0, str(file.parent))
        register_definitions(file, SparkConnectGraphElementRegistry(spark, graph), spec, spark, graph)
        events = start_run(
            spark,
            graph,
            full_refresh=request["full_refresh"],
            full_refresh_all=request["full_refresh_all"],
            refresh=request["refresh"],
            dry=request["dry_run"],
            storage=storage,
        )
        try:
            _print_events(events)
        finally:
            if not request["dry_run"]:
                flow_progress.commit(Directory(server, storage), spec.name, request["bootstrap"])


def _print_events(events: Iterable[Mapping[str, Any]]) -> None:
    """Print events. On an error raise the first one that an event reported, which has more detail."""
    first_error = None
    try:
        for result in events:
            if "pipeline_event_result" not in result:
                continue
            event = result["pipeline_event_result"].event
            message, _, error = event.message.partition("\nError: ")
            if error and first_error is None:
                first_error = RuntimeError(f"{message.rstrip('.')}: {error}")
            print(f"{event.timestamp.ToDatetime(UTC).astimezone():%H:%M:%S} {message}", flush=True)
    except Exception as error:
        raise first_error or error from error


def _spec(file: Path) -> PipelineSpec:
    import yaml
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec

    try:
        return load_pipeline_spec(file)
    except (PySparkException, yaml.YAMLError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or "it is empty"
        raise PipelineError(f"{file} is not a spec that Spark accepts: {reason}; correct it") from error


def _storage(file: Path, spec: PipelineSpec) -> str:
    """The URL of the project's checkpoints. Spark refuses a path, so a path is relative to the spec."""
    return spec.storage if urlsplit(spec.storage).scheme else (file.parent / spec.storage).as_uri()


def _catalog(storage: str) -> dict[str, str]:
    """Settings of a catalog and a warehouse in the project's storage, so that the next run finds its tables.

    Spark's default catalog forgets its tables with the session, and the next run fails on their files.
    """
    located = urlsplit(storage)
    if located.scheme != "file":
        return {}
    directory = Path(unquote(located.path))
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={directory / 'catalog'};create=true"
        ),
        # Derby would log to the working directory. The extra Java options are left to the user.
        "spark.driver.defaultJavaOptions": f'"-Dderby.stream.error.file={directory / "catalog.log"}"',
    }


@contextmanager
def _connected(
    name: str, master: str | None, settings: Mapping[str, str]
) -> Iterator[tuple[SparkSession, SparkSession]]:
    """Yield a Spark session, and the client of a Connect server in it that only this process can use."""
    port = free_port()
    os.environ[TOKEN_VARIABLE] = str(uuid.uuid4())
    server = session(
        name,
        master=master,
        settings={
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
            **settings,
        },
    )
    try:
        # From here on PySpark's functions build requests to the server.
        os.environ |= {"SPARK_LOCAL_REMOTE": "1", "SPARK_CONNECT_MODE_ENABLED": "1"}
        connect = importlib.import_module("pyspark.sql.connect.session")
        builder = connect.SparkSession.builder.remote(f"sc://{HOST}:{port}")
        spark = builder.config("spark.sql.connect.serverStacktrace.enabled", "false").getOrCreate()
        try:
            yield server, spark
        finally:
            spark.stop()
    finally:
        server.stop()


def _end_with_parent() -> None:
    """End at once when the parent dies; Spark's JVM ends with this process."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
