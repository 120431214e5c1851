"""The data directory: one broker at a time, checkpoints in Kafka's text form, what is a partition."""

import pytest

from millrace.disk import Disk
from millrace.storage.log_dir import LogDir

TOPIC_ID = bytes(range(16))


@pytest.fixture
def log_dir(tmp_path):
    log_dir = LogDir(tmp_path / "data", Disk())
    yield log_dir
    log_dir.close()


def reopened(log_dir):
    log_dir.close()
    return LogDir(log_dir.path, Disk())


def test_offsets_are_kept_in_kafkas_text_form(log_dir):
    log_dir.recovery_points.replace({("b", 1): 7, ("a.topic-x", 0): 12})
    log_dir.log_start_offsets.replace({("b", 1): 0, ("a.topic-x", 0): 3})
    log_dir.write_checkpoints()
    assert (log_dir.path / "recovery-point-offset-checkpoint").read_text() == "0\n2\na.topic-x 0 12\nb 1 7\n"
    assert (log_dir.path / "log-start-offset-checkpoint").read_text() == "0\n1\na.topic-x 0 3\n"
    again = reopened(log_dir)
    assert again.recovery_points.get("a.topic-x", 0) == 12
    assert again.log_start_offsets.get("a.topic-x", 0) == 3
    assert again.log_start_offsets.get("b", 1) == 0
    assert again.recovery_points.get("unknown", 0) == 0
    again.close()


def test_high_watermarks_are_kept_in_kafkas_text_form(log_dir):
    log_dir.high_watermarks.replace({("b", 1): 7})
    log_dir.write_checkpoints()
    assert (log_dir.path / "replication-offset-checkpoint").read_text() == "0\n1\nb 1 7\n"
    again = reopened(log_dir)
    assert (again.high_watermarks.get("b", 1), again.high_watermarks.get("unknown", 0)) == (7, 0)
    again.close()


def test_a_deleted_partition_leaves_no_offsets_to_its_namesake(log_dir):
    log_dir.recovery_points.replace({("a", 0): 5, ("b", 0): 6})
    log_dir.log_start_offsets.replace({("a", 0): 2})
    log_dir.high_watermarks.replace({("a", 0): 4})
    log_dir.write_checkpoints()
    log_dir.forget({("a", 0)})
    again = reopened(log_dir)
    assert (again.recovery_points.get("a", 0), again.log_start_offsets.get("a", 0)) == (0, 0)
    assert again.high_watermarks.get("a", 0) == 0
    assert again.recovery_points.get("b", 0) == 6
    again.close()


def test_a_damaged_checkpoint_means_to_check_everything(log_dir, caplog):
    (log_dir.path / "recovery-point-offset-checkpoint").write_bytes(b"0\n3\na 0 1\n\xff\xfe")
    again = reopened(log_dir)
    assert again.recovery_points.get("a", 0) == 0
    assert "checked from their start" in caplog.text
    again.close()


def test_a_mark_that_is_used_up_does_not_come_back_after_a_power_cut(log_dir, monkeypatch):
    log_dir.mark_clean_shutdown()
    log_dir.close()
    synced = []
    monkeypatch.setattr(Disk, "fsync_directory", lambda _, directory: synced.append(directory))
    assert LogDir(log_dir.path, Disk()).clean_shutdown
    assert synced == [log_dir.path]


def test_a_stop_is_clean_only_if_it_was_marked_and_only_once(log_dir):
    assert not log_dir.clean_shutdown
    log_dir.mark_clean_shutdown()
    second = reopened(log_dir)
    assert second.clean_shutdown
    third = reopened(second)
    assert not third.clean_shutdown
    third.close()


def test_partition_directories_are_told_from_all_else(log_dir):
    for name in ("orders-0", "orders-11", "a.b_c-d-2", "metadata", "orders-0.0af1-delete", "lost+found"):
        (log_dir.path / name).mkdir()
    (log_dir.path / "file-0").touch()
    assert log_dir.partitions() == [("a.b_c-d", 2), ("orders", 0), ("orders", 11)]
    assert [path.name for path in log_dir.doomed_directories()] == ["orders-0.0af1-delete"]


def test_the_topic_id_is_kept_beside_the_log(log_dir):
    log_dir.partition_path("orders", 0).mkdir()
    assert log_dir.topic_id("orders", 0) is None
    log_dir.write_partition_metadata("orders", 0, TOPIC_ID)
    assert log_dir.topic_id("orders", 0) == TOPIC_ID
    content = (log_dir.partition_path("orders", 0) / "partition.metadata").read_text()
    assert content == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"


def test_a_damaged_topic_id_is_ignored(log_dir, caplog):
    path = log_dir.partition_path("orders", 0)
    path.mkdir()
    (path / "partition.metadata").write_text("nonsense")
    assert log_dir.topic_id("orders", 0) is None
    assert "damaged" in caplog.text
