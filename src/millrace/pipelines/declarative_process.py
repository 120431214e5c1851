"""The process that a declarative project runs in: a Spark session with a Connect server, and its client."""

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

from millrace.pipelines import declarative_progress, failures
from millrace.pipelines.declarative import BOOTSTRAP_SETTING, INTERRUPTED
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.files import Directory
from millrace.pipelines.spark_session import session
from millrace.ports import free_port

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.sql import SparkSession

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
HOST = "localhost"


def main() -> int:
    """Do what the parent process orders on standard input; tell it what went wrong, in one line."""
    order = json.loads(sys.stdin.readline())
    # Of PySpark about pandas, which no project can help.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run(order)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if "MILLRACE_DEBUG" in os.environ:
            raise
        with os.fdopen(int(sys.argv[1]), "w") as answer:
            answer.write(str(failures.explained(error, Path(order["spec"]).parent.name, order["bootstrap"])))
        return 1
    return 0


def run(order: Mapping[str, Any]) -> None:
    """Run the project once: read its spec and definitions, hand the graph to Spark, tell what happens."""
    file = Path(order["spec"])
    spec = _spec(file)
    storage = _storage(file, spec)
    asked = {
        **_catalog(storage),
        **order["conf"],
        **spec.configuration,
        BOOTSTRAP_SETTING: order["bootstrap"],
    }
    with _connected(spec.name, order["master"], asked) as (server, spark):
        from pyspark.pipelines.cli import register_definitions
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

        graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
        # What lies beside the spec can be imported.
        sys.path.insert(0, str(file.parent))
        register_definitions(file, SparkConnectGraphElementRegistry(spark, graph), spec, spark, graph)
        events = start_run(
            spark,
            graph,
            full_refresh=order["full_refresh"],
            full_refresh_all=order["full_refresh_all"],
            refresh=order["refresh"],
            dry=order["dry_run"],
            storage=storage,
        )
        try:
            _tell(events)
        finally:
            if not order["dry_run"]:
                declarative_progress.commit(Directory(server, storage), spec.name, order["bootstrap"])


def _tell(events: Iterable[Mapping[str, Any]]) -> None:
    """Print what happens; an error at the end is the one that the events have told, which says more."""
    first_error = None
    try:
        for result in events:
            if "pipeline_event_result" not in result:
                continue
            event = result["pipeline_event_result"].event
            told, _, error = event.message.partition("\nError: ")
            if error and first_error is None:
                first_error = RuntimeError(f"{told.rstrip('.')}: {error}")
            print(f"{event.timestamp.ToDatetime(UTC).astimezone():%H:%M:%S} {told}", flush=True)
    except Exception as error:
        raise first_error or error from error


def _spec(file: Path) -> PipelineSpec:
    import yaml
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec

    try:
        return load_pipeline_spec(file)
    except (PySparkException, yaml.YAMLError, TypeError, KeyError) as error:
        said = " ".join(str(error).split()).rstrip(".") or "it is empty"
        raise PipelineError(f"{file} is not a spec that Spark takes: {said}; correct it") from error


def _storage(file: Path, spec: PipelineSpec) -> str:
    """Where Spark keeps the project's checkpoints; a path, which Spark refuses, is one beside the spec."""
    return spec.storage if urlsplit(spec.storage).scheme else (file.parent / spec.storage).as_uri()


def _catalog(storage: str) -> dict[str, str]:
    """Tables that the next run finds again: a catalog and a warehouse in the project's storage.

    Spark's own default forgets its tables with the session, and then trips over their files.
    """
    located = urlsplit(storage)
    if located.scheme != "file":
        return {}
    place = Path(unquote(located.path))
    place.mkdir(parents=True, exist_ok=True)
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (place / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={place / 'catalog'};create=true"
        ),
        # Its log would lie in the working directory. The extra options are left to the user.
        "spark.driver.defaultJavaOptions": f'"-Dderby.stream.error.file={place / "catalog.log"}"',
    }


@contextmanager
def _connected(
    name: str, master: str | None, asked: Mapping[str, str]
) -> Iterator[tuple[SparkSession, SparkSession]]:
    """This process's own Spark, and the client of a Connect server in it that nobody else can use."""
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
            **asked,
        },
    )
    try:
        # From here on PySpark's functions build what is sent to the server.
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
    """End at once when the parent is gone; Spark's JVM ends with this process."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
