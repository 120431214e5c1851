"""Packed code, and checks before a topology is submitted or changed; no log is needed."""

import zipfile
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.supervisor.code import digest_of, pack, unpack
from millrace.topologies.supervisor.description import objections
from millrace.topologies.supervisor.records import Job, decode_job, encode
from millrace.topologies.supervisor.submission import Package

from .word_counts import WORD_COUNT


def job_of(package: Package) -> Job:
    return Job(name="words", number=1, submitted_ms=1_000, owner="me", **package.fields())


def changed(tmp_path: Path, old: str, new: str) -> Package:
    text = WORD_COUNT.read_text()
    assert old in text
    path = tmp_path / "changed.py"
    path.write_text(text.replace(old, new))
    return Package(path)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            'Grouping.fields("word")}, par=4',
            'Grouping.fields("word")}, par=5',
            "count had 4 tasks and now has 5",
        ),
        (
            "class Count(StatefulBolt)",
            "class Count(Bolt)",
            "count has state that its new version would not read",
        ),
        (
            "    out = LogBolt",
            "    out2 = LogBolt",
            "out is gone, and tuples on their way to it would be lost",
        ),
    ],
)
def test_new_code_that_would_lose_tuples_or_state_is_refused(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    reasons = list(objections(job_of(Package(WORD_COUNT)), changed(tmp_path, old, new).plan))
    assert len(reasons) == 1
    assert reasons[0].startswith(reason)


def test_new_code_that_fits_is_accepted(tmp_path: Path) -> None:
    package = changed(tmp_path, ".split()", ".upper().split()")
    assert list(objections(job_of(Package(WORD_COUNT)), package.plan)) == []


def test_code_is_packed_with_the_modules_beside_it_and_with_further_files(tmp_path: Path) -> None:
    (tmp_path / "beside_the_topology.py").write_text("WORDS = 3\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "names.txt").write_text("anna\n")
    path = tmp_path / "topology.py"
    path.write_text("import beside_the_topology\n" + WORD_COUNT.read_text())
    first = Package(path, files=[tmp_path / "data"])
    second = Package(path, files=[tmp_path / "data"])
    assert digest_of(first.content) == digest_of(second.content)
    unpacked = tmp_path / "unpacked"
    unpack(first.content, unpacked)
    assert sorted(str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()) == [
        "beside_the_topology.py",
        "data/names.txt",
        "topology.py",
    ]


def test_a_file_that_is_not_there_cannot_be_shipped(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="there is no file"):
        pack(WORD_COUNT, [tmp_path / "missing.txt"])


@pytest.mark.parametrize("name", ["../outside.py", "/etc/outside.py"])
def test_packed_code_cannot_leave_its_directory(tmp_path: Path, name: str) -> None:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, "")
    with pytest.raises(TopologyError, match="outside of its directory"):
        unpack(content.getvalue(), tmp_path)


def test_a_job_is_read_only_with_its_signature() -> None:
    job = job_of(Package(WORD_COUNT))
    record = encode(b"key", job)
    assert decode_job(b"key", record) == job
    with pytest.raises(TopologyError, match="without a valid signature"):
        decode_job(b"another key", record)
    forged = record[:32] + msgspec.json.encode(msgspec.structs.replace(job, owner="other"))
    with pytest.raises(TopologyError, match="without a valid signature"):
        decode_job(b"key", forged)
