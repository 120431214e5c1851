"""Locked Java jars: fetched once, checked, cached, and used offline from then on."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

OLDEST_JAVA = 17
LOCK_FILE = Path(__file__).with_name("jars.lock")

# Names no registry: Ivy's own default is used, without POMs (the lock is already complete),
# without checksum files (the lock holds stronger ones) and without looking into ~/.m2 or ~/.ivy2,
# where a half-filled repository makes Ivy fail.
IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <property name="ivy.checksums" value=""/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false"/>
  </resolvers>
</ivysettings>
"""


class JarsUnavailable(RuntimeError):
    """Java or a jar is missing; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned artifact."""

    group: str
    artifact: str
    version: str
    sha256: str

    @classmethod
    def parse(cls, coordinate: str, sha256: str) -> Self:
        group, artifact, version = coordinate.split(":")
        return cls(group, artifact, version, sha256)

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def apache_kafka_classpath() -> str:
    """The class path of Apache Kafka's broker and command-line tools."""
    return classpath("apache-kafka")


def kafka_clients_classpath(version: str) -> str:
    """The class path of the Java client library alone, in a locked version."""
    return classpath(f"kafka-clients-{version}")


def spark_kafka_jars() -> list[Path]:
    """Spark's Kafka connector and its dependencies that Spark does not ship."""
    return files("spark-kafka")


def classpath(section: str) -> str:
    """The class path of one section of the lock file; jars that are not in the cache are fetched now."""
    return os.pathsep.join(map(str, files(section)))


def files(section: str) -> list[Path]:
    """The jars of one section of the lock file; those that are not in the cache are fetched now."""
    jars = locked_jars(section)
    directory = cache_directory()
    missing = missing_jars(section)
    if missing:
        fetch(missing, directory)
    return [directory / jar.file_name for jar in jars]


def missing_jars(section: str) -> list[Jar]:
    """The jars of one section of the lock file that are not in the cache yet."""
    directory = cache_directory()
    return [jar for jar in locked_jars(section) if not (directory / jar.file_name).exists()]


@cache
def java() -> Path:
    """The Java launcher: that of JAVA_HOME if set, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise JarsUnavailable("no Java found; install a JDK 17 or newer, or point JAVA_HOME at one")
    return Path(found)


class JavaVersion(NamedTuple):
    """The version that a Java launcher reports: the major number, and the full text."""

    major: int
    text: str

    def __str__(self) -> str:
        return self.text


def java_version(launcher: Path) -> JavaVersion | None:
    """The version of a Java launcher; None if it does not run or its output cannot be parsed."""
    try:
        told = subprocess.run(
            [launcher, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', told)
    return JavaVersion(int(found[2]), found[1]) if found else None


def cache_directory() -> Path:
    """Directory of fetched jars: MILLRACE_JARS, else millrace/jars in the user's cache directory."""
    if chosen := os.environ.get("MILLRACE_JARS"):
        return Path(chosen).expanduser().absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser().absolute() / "millrace" / "jars"


def locked_jars(section: str) -> list[Jar]:
    """The jars of one section of the lock file."""
    sections = tomllib.loads(LOCK_FILE.read_text())
    if section not in sections:
        raise JarsUnavailable(f"no locked jars named {section}; the lock has {', '.join(sections)}")
    entries: dict[str, str] = sections[section]
    return [Jar.parse(coordinate, digest) for coordinate, digest in entries.items()]


def fetch(jars: list[Jar], directory: Path) -> None:
    """Fetch jars into the cache; a jar appears there complete and checked, or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    with _exclusive(directory / ".lock"):
        # Another process may have fetched them while this one waited for the lock.
        missing = [jar for jar in jars if not (directory / jar.file_name).exists()]
        if not missing:
            return
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=directory) as work:
            _download(missing, Path(work))
            for jar in missing:
                check(Path(work) / jar.file_name, jar)
            for jar in missing:
                (Path(work) / jar.file_name).rename(directory / jar.file_name)


def _download(jars: list[Jar], work: Path) -> None:
    """Run the Ivy that PySpark ships over exactly the given jars, into `work`."""
    settings, module = work / "settings.xml", work / "ivy.xml"
    settings.write_text(IVY_SETTINGS)
    module.write_text(_ivy_module(jars))
    command = [str(java()), f"-Divy.default.ivy.user.dir={work / 'user'}", "-jar", str(_ivy())]
    command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(work / "cache")]
    command += ["-confs", "default", "-retrieve", str(work / "[artifact]-[revision].[ext]")]
    output: list[str] = []
    with (
        _progress(len(jars)) as advance,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if "[SUCCESSFUL ]" in line:
                advance()
    if ivy.returncode != 0:
        raise JarsUnavailable(_failure(output, jars))


def _ivy() -> Path:
    """The Ivy jar inside the installed PySpark, found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    locations = spec.submodule_search_locations if spec else None
    for location in locations or []:
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    raise JarsUnavailable("the Ivy that fetches jars comes with PySpark; run: pip install 'millrace[spark]'")


def _ivy_module(jars: list[Jar]) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
        ' transitive="false" conf="default"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="millrace" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _failure(output: list[str], jars: list[Jar]) -> str:
    unresolved = re.findall(r":: (\S+#\S+;\S+?): not found", "".join(output))
    if unresolved and len(unresolved) < len(jars):
        return f"the registry does not have {', '.join(unresolved)}; try again later"
    return (
        f"could not download {len(jars)} jars; check the network (behind a proxy, set JAVA_TOOL_OPTIONS="
        f"-Dhttps.proxyHost=…), or copy the jars into {cache_directory()}"
    )


def check(path: Path, jar: Jar) -> None:
    """Reject a file that is not the locked jar."""
    if not path.exists():
        raise JarsUnavailable(f"{jar.file_name} was not downloaded; try again")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != jar.sha256:
        raise JarsUnavailable(
            f"{jar.file_name} is not the jar that is locked (sha256 {digest}, expected {jar.sha256});"
            " the download was damaged or altered: try again"
        )


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the kernel releases it if this process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fetching jars (once)", total=total)
        yield lambda: progress.advance(task)
