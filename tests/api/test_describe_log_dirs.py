"""DescribeLogDirs: sizes of partitions and disks."""

import shutil

from millrace.errors import Error
from millrace.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

from ..node import create_topic
from ..records import batch
from .api import Api
from .conftest import Call


def test_sizes_are_those_of_the_logs(call: Call, api: Api) -> None:
    create_topic(api, "orders", 2)
    records = batch(b"a", b"b")
    api.partitions.leader("orders", 1).append_as_leader(memoryview(records))
    (directory,) = call(DescribeLogDirsRequest(topics=None)).results
    assert directory.log_dir == str(api.partitions.log_dirs[0].path.absolute())
    assert 0 < directory.usable_bytes <= directory.total_bytes
    (topic,) = directory.topics
    sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
    assert sizes == {0: 0, 1: len(records)}


def test_single_partitions_can_be_requested(call: Call, api: Api) -> None:
    create_topic(api, "orders", 2)
    create_topic(api, "other", 1)
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="orders", partitions=[1, 9])])
    (directory,) = call(request).results
    (topic,) = directory.topics
    assert [(topic.name, partition.partition_index) for partition in topic.partitions] == [("orders", 1)]


def test_a_directory_that_is_gone_is_an_error_of_its_own(call: Call, api: Api) -> None:
    shutil.rmtree(api.partitions.log_dirs[0].path)
    (directory,) = call(DescribeLogDirsRequest(topics=None), 1).results
    assert directory.error_code == Error.KAFKA_STORAGE_ERROR
