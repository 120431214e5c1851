"""Start and end offsets of leader epochs."""

import pytest

from millrace.disk import Disk
from millrace.storage.leader_epochs import FILE_NAME, LeaderEpochs


@pytest.fixture
def epochs(tmp_path):
    epochs = LeaderEpochs.load(tmp_path, Disk())
    epochs.assign(1, 10)
    epochs.assign(3, 20)
    epochs.assign(4, 30)
    return epochs


def test_an_epoch_ends_where_the_next_begins(epochs):
    assert epochs.end_offset(1, 50) == (1, 20)
    assert epochs.end_offset(3, 50) == (3, 30)
    assert epochs.end_offset(4, 50) == (4, 50)


def test_an_epoch_that_wrote_nothing_ends_with_the_one_before(epochs):
    assert epochs.end_offset(2, 50) == (1, 20)


def test_an_epoch_before_the_first_ends_where_the_first_begins(epochs):
    assert epochs.end_offset(0, 50) == (0, 10)


def test_a_later_epoch_is_unknown(epochs):
    assert epochs.end_offset(5, 50) == (-1, -1)


def test_known_and_older_epochs_change_nothing(epochs):
    epochs.assign(4, 40)
    epochs.assign(2, 40)
    assert epochs.latest == 4
    assert len(epochs.entries) == 3


def test_every_offset_has_the_epoch_that_wrote_it(epochs):
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 29, 30, 99)] == [-1, 1, 1, 3, 3, 4, 4]


def test_the_end_can_be_cut(epochs, tmp_path):
    epochs.truncate_from_end(30)
    assert epochs.latest == 3
    assert LeaderEpochs.load(tmp_path, Disk()).entries == [(1, 10), (3, 20)]


def test_the_start_can_be_cut(epochs, tmp_path):
    epochs.truncate_from_start(25)
    assert LeaderEpochs.load(tmp_path, Disk()).entries == [(3, 25), (4, 30)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [(3, 25), (4, 30)]


def test_a_damaged_file_counts_as_none(epochs, tmp_path, caplog):
    for content in ("", "0\n5\n1 1\n", "0\n1\nx y\n", "1\n0\n"):
        (tmp_path / FILE_NAME).write_text(content)
        assert LeaderEpochs.load(tmp_path, Disk()).entries == []
    assert caplog.text.count("leader epochs are taken from the log") == 4
