"""The Kafka APIs this broker speaks: one file each, listed once here."""

from __future__ import annotations

from millrace.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    change_metadata,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    follow_metadata,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from millrace.api.authorization import (
    AS_REPLICA_OF_FETCH,
    IDEMPOTENT_PRODUCER,
    ON_COORDINATED_KEY,
    ON_COORDINATED_KEYS,
    PUBLIC,
    READ_FETCHED,
    Within,
    needs,
    on_cluster,
    on_configs,
    on_group,
    on_groups,
    on_topics,
    on_transactional_id,
    on_transactional_ids,
)
from millrace.api.dispatch import Handler
from millrace.security.operations import Operation, ResourceType
from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from millrace.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from millrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from millrace.wire.messages.alter_configs import AlterConfigsRequest
from millrace.wire.messages.alter_partition import AlterPartitionRequest
from millrace.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from millrace.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.change_metadata import ChangeMetadataRequest
from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millrace.wire.messages.controlled_shutdown import ControlledShutdownRequest
from millrace.wire.messages.create_acls import CreateAclsRequest
from millrace.wire.messages.create_partitions import CreatePartitionsRequest
from millrace.wire.messages.create_topics import CreateTopicsRequest
from millrace.wire.messages.delete_acls import DeleteAclsRequest
from millrace.wire.messages.delete_groups import DeleteGroupsRequest
from millrace.wire.messages.delete_records import DeleteRecordsRequest
from millrace.wire.messages.delete_topics import DeleteTopicsRequest
from millrace.wire.messages.describe_acls import DescribeAclsRequest
from millrace.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from millrace.wire.messages.describe_cluster import DescribeClusterRequest
from millrace.wire.messages.describe_configs import DescribeConfigsRequest
from millrace.wire.messages.describe_groups import DescribeGroupsRequest
from millrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from millrace.wire.messages.describe_producers import DescribeProducersRequest
from millrace.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from millrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from millrace.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from millrace.wire.messages.elect_leaders import ElectLeadersRequest
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.fetch import FetchRequest
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.follow_metadata import FollowMetadataRequest
from millrace.wire.messages.heartbeat import HeartbeatRequest
from millrace.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from millrace.wire.messages.init_producer_id import InitProducerIdRequest
from millrace.wire.messages.join_group import JoinGroupRequest
from millrace.wire.messages.leave_group import LeaveGroupRequest
from millrace.wire.messages.list_config_resources import ListConfigResourcesRequest
from millrace.wire.messages.list_groups import ListGroupsRequest
from millrace.wire.messages.list_offsets import ListOffsetsRequest
from millrace.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from millrace.wire.messages.list_transactions import ListTransactionsRequest
from millrace.wire.messages.metadata import MetadataRequest
from millrace.wire.messages.offset_commit import OffsetCommitRequest
from millrace.wire.messages.offset_delete import OffsetDeleteRequest
from millrace.wire.messages.offset_fetch import OffsetFetchRequest
from millrace.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from millrace.wire.messages.produce import ProduceRequest
from millrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from millrace.wire.messages.sasl_handshake import SaslHandshakeRequest
from millrace.wire.messages.sync_group import SyncGroupRequest
from millrace.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from millrace.wire.messages.write_txn_markers import WriteTxnMarkersRequest

READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
DELETE, ALTER, DESCRIBE = Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
CLUSTER_ACTION = Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

HANDLERS = (
    Handler(
        ProduceRequest,
        produce.handle,
        3,
        13,
        authorize=needs(on_transactional_id(WRITE), on_topics(WRITE, "topic_data")),
    ),
    Handler(FetchRequest, fetch.handle, 4, 18, authorize=needs(AS_REPLICA_OF_FETCH, READ_FETCHED)),
    Handler(ListOffsetsRequest, list_offsets.handle, 1, 11, authorize=needs(on_topics(DESCRIBE))),
    Handler(
        MetadataRequest,
        metadata.handle,
        0,
        13,
        authorize=needs(Within(DESCRIBE, TOPIC), Within(CREATE, TOPIC)),
    ),
    Handler(
        FindCoordinatorRequest,
        find_coordinator.handle,
        0,
        6,
        authorize=needs(ON_COORDINATED_KEY, ON_COORDINATED_KEYS),
    ),
    Handler(JoinGroupRequest, join_group.handle, 0, 9, authorize=needs(on_group(READ))),
    Handler(SyncGroupRequest, sync_group.handle, 0, 5, authorize=needs(on_group(READ))),
    Handler(HeartbeatRequest, heartbeat.handle, 0, 4, authorize=needs(on_group(READ))),
    Handler(LeaveGroupRequest, leave_group.handle, 0, 5, authorize=needs(on_group(READ))),
    Handler(
        OffsetCommitRequest, offset_commit.handle, 2, 10, authorize=needs(on_group(READ), on_topics(READ))
    ),
    Handler(
        OffsetFetchRequest,
        offset_fetch.handle,
        1,
        10,
        authorize=needs(on_group(DESCRIBE), on_groups(DESCRIBE, "groups"), Within(DESCRIBE, TOPIC)),
    ),
    Handler(
        OffsetDeleteRequest, offset_delete.handle, 0, 0, authorize=needs(on_group(DELETE), on_topics(READ))
    ),
    Handler(
        DescribeGroupsRequest, describe_groups.handle, 0, 6, authorize=needs(on_groups(DESCRIBE, "groups"))
    ),
    Handler(
        DeleteGroupsRequest, delete_groups.handle, 0, 2, authorize=needs(on_groups(DELETE, "groups_names"))
    ),
    Handler(ListGroupsRequest, list_groups.handle, 0, 5, authorize=needs(Within(DESCRIBE, GROUP))),
    Handler(SaslHandshakeRequest, sasl_handshake.handle, 1, 1, authorize=PUBLIC),
    Handler(ApiVersionsRequest, api_versions.handle, 0, 4, authorize=PUBLIC),
    Handler(
        CreateTopicsRequest,
        create_topics.handle,
        2,
        7,
        authorize=needs(on_topics(CREATE, or_on_cluster=True)),
    ),
    Handler(
        DeleteTopicsRequest,
        delete_topics.handle,
        1,
        6,
        authorize=needs(on_topics(DELETE), on_topics(DELETE, "topic_names")),
    ),
    Handler(DeleteRecordsRequest, delete_records.handle, 0, 2, authorize=needs(on_topics(DELETE))),
    Handler(
        InitProducerIdRequest,
        init_producer_id.handle,
        0,
        5,
        authorize=needs(on_transactional_id(WRITE), IDEMPOTENT_PRODUCER, Within(WRITE, TOPIC)),
    ),
    Handler(
        OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.handle,
        2,
        4,
        authorize=needs(on_topics(DESCRIBE)),
    ),
    Handler(
        AddPartitionsToTxnRequest,
        add_partitions_to_txn.handle,
        0,
        5,
        authorize=needs(
            on_transactional_id(WRITE, "v3_and_below_transactional_id"),
            on_cluster(CLUSTER_ACTION, since=4),
            Within(WRITE, TOPIC),
        ),
    ),
    Handler(
        AddOffsetsToTxnRequest,
        add_offsets_to_txn.handle,
        0,
        4,
        authorize=needs(on_transactional_id(WRITE), on_group(READ)),
    ),
    Handler(EndTxnRequest, end_txn.handle, 0, 5, authorize=needs(on_transactional_id(WRITE))),
    Handler(
        WriteTxnMarkersRequest, write_txn_markers.handle, 1, 2, authorize=needs(on_cluster(CLUSTER_ACTION))
    ),
    Handler(
        TxnOffsetCommitRequest,
        txn_offset_commit.handle,
        0,
        5,
        authorize=needs(on_transactional_id(WRITE), on_group(READ), on_topics(READ)),
    ),
    Handler(DescribeAclsRequest, describe_acls.handle, 1, 3, authorize=needs(on_cluster(DESCRIBE))),
    Handler(CreateAclsRequest, create_acls.handle, 1, 3, authorize=needs(on_cluster(ALTER))),
    Handler(DeleteAclsRequest, delete_acls.handle, 1, 3, authorize=needs(on_cluster(ALTER))),
    Handler(
        DescribeConfigsRequest, describe_configs.handle, 1, 4, authorize=needs(on_configs(DESCRIBE_CONFIGS))
    ),
    Handler(AlterConfigsRequest, alter_configs.handle, 0, 2, authorize=needs(on_configs(ALTER_CONFIGS))),
    Handler(DescribeLogDirsRequest, describe_log_dirs.handle, 1, 5, authorize=needs(on_cluster(DESCRIBE))),
    Handler(SaslAuthenticateRequest, sasl_authenticate.handle, 0, 2, authorize=PUBLIC),
    Handler(CreatePartitionsRequest, create_partitions.handle, 0, 3, authorize=needs(on_topics(ALTER))),
    Handler(ElectLeadersRequest, elect_leaders.handle, 0, 2, authorize=needs(on_cluster(ALTER))),
    Handler(
        IncrementalAlterConfigsRequest,
        incremental_alter_configs.handle,
        0,
        1,
        authorize=needs(on_configs(ALTER_CONFIGS)),
    ),
    Handler(
        AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.handle,
        0,
        1,
        authorize=needs(on_cluster(ALTER)),
    ),
    Handler(
        ListPartitionReassignmentsRequest,
        list_partition_reassignments.handle,
        0,
        0,
        authorize=needs(on_cluster(DESCRIBE)),
    ),
    Handler(
        DescribeClientQuotasRequest,
        describe_client_quotas.handle,
        0,
        1,
        authorize=needs(on_cluster(DESCRIBE_CONFIGS)),
    ),
    Handler(
        AlterClientQuotasRequest,
        alter_client_quotas.handle,
        0,
        1,
        authorize=needs(on_cluster(ALTER_CONFIGS)),
    ),
    Handler(
        DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.handle,
        0,
        0,
        authorize=needs(on_cluster(DESCRIBE)),
    ),
    Handler(
        AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.handle,
        0,
        0,
        authorize=needs(on_cluster(ALTER)),
    ),
    Handler(
        ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.handle,
        0,
        1,
        authorize=needs(on_group(READ), Within(DESCRIBE, TOPIC)),
    ),
    Handler(
        ConsumerGroupDescribeRequest,
        consumer_group_describe.handle,
        0,
        1,
        authorize=needs(on_groups(DESCRIBE, "group_ids"), Within(DESCRIBE, TOPIC)),
    ),
    Handler(
        DescribeClusterRequest, describe_cluster.handle, 0, 2, authorize=needs(Within(DESCRIBE, CLUSTER))
    ),
    Handler(DescribeProducersRequest, describe_producers.handle, 0, 0, authorize=needs(on_topics(READ))),
    Handler(
        DescribeTransactionsRequest,
        describe_transactions.handle,
        0,
        0,
        authorize=needs(on_transactional_ids(DESCRIBE, "transactional_ids"), Within(DESCRIBE, TOPIC)),
    ),
    Handler(
        ListTransactionsRequest,
        list_transactions.handle,
        0,
        2,
        authorize=needs(Within(DESCRIBE, TRANSACTIONAL_ID)),
    ),
    Handler(
        ListConfigResourcesRequest,
        list_config_resources.handle,
        0,
        1,
        authorize=needs(on_cluster(DESCRIBE_CONFIGS)),
    ),
    Handler(
        DescribeTopicPartitionsRequest,
        describe_topic_partitions.handle,
        0,
        0,
        authorize=needs(on_topics(DESCRIBE), Within(DESCRIBE, TOPIC)),
    ),
)
"""Drives dispatch and ApiVersions; nothing else lists the APIs."""

BETWEEN_BROKERS = tuple(
    Handler(request, handle, version, version, authorize=needs(on_cluster(CLUSTER_ACTION)))
    for request, handle, version in (
        (AlterPartitionRequest, alter_partition.handle, 3),
        (AllocateProducerIdsRequest, allocate_producer_ids.handle, 0),
        (ControlledShutdownRequest, controlled_shutdown.handle, 3),
        (FollowMetadataRequest, follow_metadata.handle, 0),
        (ChangeMetadataRequest, change_metadata.handle, 0),
    )
)
"""The APIs of the controller, which brokers know without asking."""

HANDLERS_BY_KEY = {handler.api_key: handler for handler in (*HANDLERS, *BETWEEN_BROKERS)}

LOGIN_KEYS = frozenset(
    request.api_key for request in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
)
"""The APIs that a client may use before it is authenticated."""


def offered_versions() -> tuple[tuple[int, int, int], ...]:
    """The APIs as ApiVersions lists them, in the order of their keys: (key, lowest, highest version)."""
    offered = []
    for handler in sorted(HANDLERS, key=lambda handler: handler.api_key):
        # Old librdkafka takes a broker without Produce v0 for one that cannot take compressed records.
        lowest = 0 if handler.request is ProduceRequest else handler.lowest
        offered.append((handler.api_key, lowest, handler.highest))
    return tuple(offered)
