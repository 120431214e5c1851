from millrace.admin.log_dirs import describe_log_dirs
from millrace.client import Client, TopicPartition, UnknownBroker

from .conftest import NODE_ID, Send


async def test_log_directories_tell_the_size_of_replicas(client: Client, topic: str, send: Send) -> None:
    send(topic, 0, 5)
    described = await describe_log_dirs(client, [NODE_ID, 99])
    (log_dir,) = described[NODE_ID]
    sizes = {replica.partition: replica.size_bytes for replica in log_dir.replicas}
    assert sizes[TopicPartition(topic, 0)] > 0
    assert sizes[TopicPartition(topic, 1)] == 0
    assert log_dir.error is None
    assert log_dir.usable_bytes is not None
    assert log_dir.total_bytes is not None
    assert 0 < log_dir.usable_bytes < log_dir.total_bytes
    assert isinstance(described.failed[99], UnknownBroker)
