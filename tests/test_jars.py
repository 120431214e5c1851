import hashlib
import multiprocessing
from pathlib import Path

import pytest

from millrace import jars
from millrace.jars import Jar, JarsUnavailable

CONTENTS = b"not really a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENTS).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLRACE_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def one_locked_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "test.lock"
    lock.write_text(f'[things]\n"org.example:thing:1.0" = "{JAR.sha256}"\n')
    monkeypatch.setattr(jars, "LOCK_FILE", lock)


def serve(monkeypatch: pytest.MonkeyPatch, contents: bytes) -> list[list[Jar]]:
    """Replace the registry; returns the list of requested jars."""
    asked: list[list[Jar]] = []

    def download(wanted: list[Jar], work: Path) -> None:
        asked.append(wanted)
        for jar in wanted:
            (work / jar.file_name).write_bytes(contents)

    monkeypatch.setattr(jars, "_download", download)
    return asked


def test_lock_pins_every_jar_by_digest() -> None:
    locked = jars.locked_jars("apache-kafka")
    assert {"kafka_2.13-4.3.1.jar", "kafka-tools-4.3.1.jar"} <= {jar.file_name for jar in locked}
    assert all(len(jar.sha256) == 64 for jar in locked)


def test_unknown_section_names_the_known_ones() -> None:
    with pytest.raises(JarsUnavailable, match=r"kafka-clients-3\.9\.2"):
        jars.kafka_clients_classpath("0.8")


@pytest.mark.usefixtures("one_locked_jar")
def test_second_use_needs_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serve(monkeypatch, CONTENTS)
    assert jars.classpath("things") == str(cache / "thing-1.0.jar")
    assert jars.classpath("things") == str(cache / "thing-1.0.jar")
    assert asked == [[JAR]]


@pytest.mark.usefixtures("one_locked_jar")
def test_altered_jar_is_refused_and_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, b"something else")
    with pytest.raises(JarsUnavailable, match=r"thing-1\.0\.jar is not the jar that is locked"):
        jars.classpath("things")
    assert [path.name for path in cache.iterdir()] == [".lock"]


def _fetch_and_count(directory: Path, downloads: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    def download(wanted: list[Jar], work: Path) -> None:
        with downloads.get_lock():
            downloads.value += 1
        (work / wanted[0].file_name).write_bytes(CONTENTS)

    jars._download = download
    jars.fetch([JAR], directory)


def test_processes_that_fetch_concurrently_download_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    downloads = context.Value("i", 0)
    processes = [context.Process(target=_fetch_and_count, args=(tmp_path, downloads)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert downloads.value == 1
    assert (tmp_path / "thing-1.0.jar").read_bytes() == CONTENTS


@pytest.mark.usefixtures("cache", "one_locked_jar")
def test_missing_pyspark_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(jars, "java", lambda: Path("/bin/true"))
    with pytest.raises(JarsUnavailable, match=r"pip install 'millrace\[spark\]'"):
        jars.classpath("things")


def test_missing_java_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jars.java.cache_clear()
    with pytest.raises(JarsUnavailable, match="install a JDK 17"):
        jars.java()


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jars.java.cache_clear()
    assert jars.java() == launcher
    jars.java.cache_clear()


@pytest.mark.java
def test_missing_network_is_reported_and_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(JarsUnavailable, match="check the network"):
        jars.kafka_clients_classpath("3.9.2")
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_spark_connector_is_locked() -> None:
    names = {jar.artifact for jar in jars.locked_jars("spark-kafka")}
    assert names == {
        "commons-pool2",
        "hadoop-bare-naked-local-fs",
        "kafka-clients",
        "spark-avro_2.13",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    }


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert jars.java_version(tmp_path / "java") is None
