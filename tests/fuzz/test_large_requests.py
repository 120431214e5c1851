"""Well-formed requests that are absurdly large are refused, or handled in little memory beside others."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from millrace.client import ConnectionLost
from millrace.errors import Error
from millrace.testing import BrokerProcess
from millrace.wire.decoding import MAX_REQUEST_ELEMENTS
from millrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.delete_topics import DeleteTopicsRequest
from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.schema import Request

from ..wire_client import WireClient
from .healthy import TOPIC, HealthyClient

MANY = 10_000
VERY_MANY = MAX_REQUEST_ELEMENTS - 100
BROKER, TOPICS = 4, 2
MAX_GROWTH_BYTES = 150 << 20

LARGE: dict[str, tuple[Request, int]] = {
    "the same topic, created": (
        CreateTopicsRequest(topics=[CreatableTopic(name="again", num_partitions=1)] * MANY),
        7,
    ),
    "topics, created with absurd numbers": (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=f"t{n}", num_partitions=2**31 - 1, replication_factor=1)
                for n in range(1000)
            ]
        ),
        7,
    ),
    "topics, deleted": (DeleteTopicsRequest(topic_names=[f"none-{n}" for n in range(MANY)]), 5),
    "the same topic, deleted": (DeleteTopicsRequest(topic_names=["none"] * MANY), 5),
    "partitions, added": (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=f"none-{n}") for n in range(MANY)]),
        3,
    ),
    "configs, altered": (
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=TOPICS, resource_name=f"t{n}") for n in range(MANY)]
        ),
        1,
    ),
    "the same configs, described": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
                for _ in range(MANY)
            ],
            include_documentation=True,
            include_synonyms=True,
        ),
        4,
    ),
    "topics, described": (
        MetadataRequest(topics=[MetadataRequestTopic(name=f"not/{n}") for n in range(MANY)]),
        9,
    ),
    "topics, created automatically": (
        MetadataRequest(topics=[MetadataRequestTopic(name=f"auto-{n}") for n in range(300)]),
        9,
    ),
    "the same partition, fetched": (
        FetchRequest(
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchPartition(partition=0, partition_max_bytes=1 << 20) for _ in range(VERY_MANY)
                    ],
                )
            ],
        ),
        11,
    ),
    "the same partition, searched": (
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[
                        ListOffsetsPartition(partition_index=0, timestamp=1) for _ in range(VERY_MANY)
                    ],
                )
            ]
        ),
        5,
    ),
    "nothing, produced": (
        ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(
                    name=TOPIC,
                    partition_data=[PartitionProduceData(index=0, records=b"")] * MANY,
                )
            ],
        ),
        9,
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess({"broker.id": "1"}) as broker:
        yield broker


def test_large_requests_are_answered_and_do_not_disturb_others(broker: BrokerProcess) -> None:
    process = psutil.Process(broker.pid)
    with HealthyClient(broker.bootstrap), WireClient(broker.bootstrap) as client:
        resident = process.memory_info().rss
        for request, version in LARGE.values():
            client.send(request, version)
        assert process.memory_info().rss - resident < MAX_GROWTH_BYTES
    assert "Traceback" not in broker.log_file.read_text()


def test_absurd_numbers_of_partitions_are_refused(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap) as client:
        response = client.send(*LARGE["topics, created with absurd numbers"])
        assert {Error(topic.error_code) for topic in response.topics} == {Error.POLICY_VIOLATION}


@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(MAX_REQUEST_ELEMENTS + 1)]),
        DeleteTopicsRequest(topic_names=[""] * (10 * MAX_REQUEST_ELEMENTS)),
        FetchRequest(
            topics=[FetchTopic(partitions=[FetchPartition()] * 100)] * (MAX_REQUEST_ELEMENTS // 100)
        ),
    ],
    ids=lambda request: type(request).__name__,
)
def test_more_elements_than_any_client_sends_close_the_connection(
    broker: BrokerProcess, request_: Request
) -> None:
    with WireClient(broker.bootstrap) as client, pytest.raises(ConnectionLost):
        client.send(request_, 4)
    assert f"more than {MAX_REQUEST_ELEMENTS} elements" in broker.log_file.read_text()
