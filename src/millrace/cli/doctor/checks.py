"""The checks of `millrace doctor`, one function each."""

import contextlib
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from millrace import jars

GIB = 1024**3
OLDEST_PYTHON = (3, 11)
ENOUGH_FILES = 10_000
FEWEST_FILES = 1024
ENOUGH_DISK_BYTES = 5 * GIB
LEAST_DISK_BYTES = GIB // 2
ENOUGH_MEMORY_BYTES = GIB // 4
OPTIONAL_PACKAGES = ("pyspark",)
TESTED_VERSIONS = {"pyspark": "4.3.0"}
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
VOLATILE_FILE_SYSTEMS = ("tmpfs", "ramfs")


class Verdict(Enum):
    """Severity: a broker runs despite WARN, not despite FAIL."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """The result of a check, and a remedy if one is needed."""

    verdict: Verdict
    what: str
    state: str
    remedy: str = ""


def examine(data_dir: Path, port: int) -> list[Finding]:
    """Run every check, in order."""
    return [
        check_python(),
        *check_packages(),
        check_java(),
        check_connector(),
        check_port(port),
        check_open_files(),
        *check_data_dir(data_dir),
        *check_logs(data_dir),
        check_memory(),
    ]


def check_python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Verdict.FAIL, "Python", version, "install Python 3.11 or newer")
    return Finding(Verdict.OK, "Python", f"{version} ({sys.executable})")


def check_packages() -> Iterator[Finding]:
    for package in (*needed_packages(), *OPTIONAL_PACKAGES):
        try:
            yield _judge_version(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            if package in OPTIONAL_PACKAGES:
                remedy = "only pipelines need it: pip install 'millrace[spark]'"
                yield Finding(Verdict.WARN, package, "not installed", remedy)
            else:
                yield Finding(Verdict.FAIL, package, "not installed", f"pip install {package}")


def _judge_version(package: str, version: str) -> Finding:
    tested = TESTED_VERSIONS.get(package, version)
    remedy = f"pipelines are tested with {tested}: pip install 'millrace[spark]'" if version != tested else ""
    return Finding(Verdict.WARN if remedy else Verdict.OK, package, version, remedy)


def needed_packages() -> list[str]:
    """The required packages, from the package's own metadata."""
    requirements = importlib.metadata.requires("millrace") or ()
    return [re.split(r"[^\w.-]", text)[0] for text in requirements if "extra ==" not in text]


def check_java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    launcher = (shutil.which("java", path=str(Path(home) / "bin")) if home else None) or shutil.which("java")
    only_for = "only Spark pipelines need it: install a JDK 17 or newer, or point JAVA_HOME at one"
    if launcher is None:
        return Finding(Verdict.WARN, "Java", "not found", only_for)
    version = jars.java_version(Path(launcher))
    if version is None:
        return Finding(Verdict.WARN, "Java", f"{launcher} does not print its version", only_for)
    if version.major < jars.OLDEST_JAVA:
        return Finding(Verdict.WARN, "Java", f"{version} ({launcher})", only_for)
    return Finding(Verdict.OK, "Java", f"{version} ({launcher})")


def check_connector() -> Finding:
    """Whether the jars of Spark's Kafka connector are in the cache and undamaged."""
    what = "connector"
    if missing := jars.missing_jars("spark-kafka"):
        remedy = (
            "only pipelines need them: the first `millrace run` fetches them, and needs the network for it"
        )
        return Finding(Verdict.WARN, what, f"{len(missing)} of Spark's Kafka jars not fetched yet", remedy)
    directory = jars.cache_directory()
    for jar in jars.locked_jars("spark-kafka"):
        try:
            jars.check(directory / jar.file_name, jar)
        except jars.JarsUnavailable:
            remedy = f"delete it, and it is fetched again: rm {directory / jar.file_name}"
            return Finding(Verdict.WARN, what, f"{jar.file_name} is damaged", remedy)
    return Finding(Verdict.OK, what, f"Spark's Kafka jars are in {directory}")


def check_port(port: int) -> Finding:
    what = f"port {port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return Finding(Verdict.FAIL, what, "needs privileges", "choose a port above 1023")
        except OSError:
            owner = port_owner(port) or "another process"
            remedy = "fine if that is your broker; else stop it, or start yours with --port"
            return Finding(Verdict.WARN, what, f"in use by {owner}", remedy)
    return Finding(Verdict.OK, what, "free")


def port_owner(port: int) -> str | None:
    """The process that listens on a port, from /proc; None if it is not visible."""
    sockets = {f"socket:[{inode}]" for inode in _listening_sockets(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        # Processes end meanwhile, and those of other users are not readable.
        with contextlib.suppress(OSError):
            if sockets.isdisjoint(_open_handles(process)):
                continue
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            return f"pid {process.name}: {command.strip()[:60]}"
    return None


def _open_handles(process: Path) -> Iterator[str]:
    for handle in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(handle.readlink())


def _listening_sockets(port: int) -> Iterator[str]:
    listening = "0A"
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for columns in (line.split() for line in lines):
            if columns[3] == listening and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def check_open_files() -> Finding:
    limit, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    state = f"{limit} (may be raised to {ceiling})"
    remedy = "each connection and each segment in use takes one: ulimit -n 100000"
    if limit < FEWEST_FILES:
        return Finding(Verdict.FAIL, "open files", state, remedy)
    if limit < ENOUGH_FILES:
        return Finding(Verdict.WARN, "open files", state, remedy)
    return Finding(Verdict.OK, "open files", state)


def check_data_dir(data_dir: Path) -> Iterator[Finding]:
    existing = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            Verdict.FAIL, "data dir", f"{existing} cannot be written", "choose another with --data-dir"
        )
        return
    yield Finding(Verdict.OK, "data dir", f"{data_dir}{'' if existing == data_dir else ' (to be created)'}")
    yield _check_space(existing)
    yield _check_file_system(existing)


def _check_space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    state = f"{free / GIB:.1f} GiB free"
    remedy = "free some space, or choose another --data-dir"
    if free < LEAST_DISK_BYTES:
        return Finding(Verdict.FAIL, "disk space", state, remedy)
    return Finding(
        Verdict.WARN if free < ENOUGH_DISK_BYTES else Verdict.OK,
        "disk space",
        state,
        remedy if free < ENOUGH_DISK_BYTES else "",
    )


def _check_file_system(directory: Path) -> Finding:
    kind = file_system(directory)
    if kind in NETWORK_FILE_SYSTEMS:
        remedy = "locks and flushes of network disks are not reliable; choose a local --data-dir"
        return Finding(Verdict.WARN, "file system", kind, remedy)
    if kind in VOLATILE_FILE_SYSTEMS:
        return Finding(
            Verdict.WARN,
            "file system",
            kind,
            "its contents are lost at the next boot; choose a --data-dir on a disk",
        )
    return Finding(Verdict.OK, "file system", kind or "unknown")


def file_system(directory: Path) -> str | None:
    """The type of a directory's file system, from /proc; None if it is unknown."""
    mounts = Path("/proc/mounts")
    kinds = dict(line.split()[1:3] for line in mounts.read_text().splitlines()) if mounts.exists() else {}
    resolved = directory.resolve()
    return next((kinds[str(path)] for path in (resolved, *resolved.parents) if str(path) in kinds), None)


def check_logs(data_dir: Path) -> Iterator[Finding]:
    """Segments that were deleted by hand."""
    from millrace.storage import holes

    if not data_dir.is_dir():
        return
    try:
        policies = _cleanup_policies(data_dir)
        found = list(holes.in_data_dir(data_dir, lambda topic: "compact" in policies.get(topic, "compact")))
    except OSError as error:
        yield Finding(Verdict.FAIL, "logs", str(error), "make it readable, or restore it from a copy")
        return
    if not found:
        yield Finding(Verdict.OK, "logs", "no segment is missing")
    for partition, hole in found:
        remedy = "their segments were deleted or damaged; restore the files while the broker is stopped"
        yield Finding(Verdict.WARN, "logs", f"{partition}: {hole}", remedy)


def _cleanup_policies(data_dir: Path) -> dict[str, str]:
    """The cleanup policy of each topic that has a file of its own."""
    from millrace.cluster.topic_files import TopicFiles
    from millrace.disk import Disk

    directory = data_dir / "metadata" / "topics"
    topics = TopicFiles(directory, Disk(), node_id=0).live() if directory.is_dir() else []
    return {topic.name: topic.configs.get("cleanup.policy", "delete") for topic in topics}


def check_memory() -> Finding:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists() and (found := re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())):
        available = int(found[1]) * 1024
    state = f"{available / GIB:.1f} GiB available"
    if available < ENOUGH_MEMORY_BYTES:
        return Finding(
            Verdict.WARN,
            "memory",
            state,
            "a broker needs 40 MB, and is fast for the part of the log that is cached",
        )
    return Finding(Verdict.OK, "memory", state)
