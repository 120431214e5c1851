"""Reassignments and elections with one broker, ACLs without an authorizer: as in Apache Kafka."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millrace.wire.messages.create_acls import AclCreation, CreateAclsRequest
from millrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millrace.wire.messages.describe_acls import DescribeAclsRequest
from millrace.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from millrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .twins import Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

PREFERRED, UNCLEAN = 0, 1
TOPIC, WRITE, ALLOW, ANY, LITERAL = 2, 4, 3, 1, 3


def test_no_reassignment_is_under_way(twins: Twins) -> None:
    twins.create_topic("settled", 2)
    named = ListPartitionReassignmentsTopics
    for topics in (
        None,
        [],
        [named("settled", [0, 1])],
        [named("settled", [])],
        [named("settled", [7])],
        [named("none", [0])],
    ):
        twins.agree(ListPartitionReassignmentsRequest(topics=topics), 0)


def test_partitions_stay_where_they_are(twins: Twins) -> None:
    twins.create_topic("staying", 2)
    here, elsewhere = [1], [2]
    for replicas in (here, elsewhere, [1, 2], [2, 1], [1, 1], [-1], [], None):
        for allow_change in (True, False):
            request = AlterPartitionReassignmentsRequest(
                allow_replication_factor_change=allow_change,
                topics=[
                    ReassignableTopic(
                        "staying", [ReassignablePartition(0, replicas), ReassignablePartition(1, here)]
                    ),
                    ReassignableTopic("staying", [ReassignablePartition(7, replicas)]),
                    ReassignableTopic("none", [ReassignablePartition(0, replicas)]),
                    ReassignableTopic("staying", []),
                ],
            )
            twins.agree_in_all(request)
    twins.agree_in_all(AlterPartitionReassignmentsRequest())


def test_no_election_is_needed(twins: Twins) -> None:
    twins.create_topic("led", 2)
    for election in (PREFERRED, UNCLEAN, 7):
        for topics in (
            [TopicPartitions("led", [0, 1])],
            [TopicPartitions("led", [0]), TopicPartitions("led", [0, 7])],
            [TopicPartitions("led", [])],
            [TopicPartitions("none", [0])],
        ):
            request = ElectLeadersRequest(election, topics)
            # Before v1 every election is a preferred one.
            twins.agree_in_all(request, since=1)
    twins.agree_in_all(ElectLeadersRequest(PREFERRED, []))
    twins.agree_in_all(ElectLeadersRequest(PREFERRED, [TopicPartitions("led", [0])]))


def test_an_election_of_all_partitions_reports_only_those_that_need_one(twins: Twins) -> None:
    twins.create_topic("all-led", 2)
    for election in (PREFERRED, UNCLEAN):
        for peer in twins:
            response = peer.ask(ElectLeadersRequest(election, None), 2)
            assert response.error_code == Error.NONE
            results = {result.topic: result.partition_result for result in response.replica_election_results}
            assert results["all-led"] == []


def test_acls_need_an_authorizer(twins: Twins) -> None:
    twins.agree_in_all(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY))
    creation = AclCreation(TOPIC, "t", LITERAL, "User:alice", "*", WRITE, ALLOW)
    deletion = DeleteAclsFilter(TOPIC, "t", LITERAL, None, None, ANY, ANY)
    for times in range(3):
        twins.agree_in_all(CreateAclsRequest([creation] * times))
        twins.agree_in_all(DeleteAclsRequest([deletion] * times))
