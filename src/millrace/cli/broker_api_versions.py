"""`millrace broker-api-versions`: Kafka's kafka-broker-api-versions."""

import importlib
import pkgutil

import click

from millrace.admin.cluster import describe_cluster
from millrace.cli.terminal.options import KafkaCommand, Target, broker_options
from millrace.cli.terminal.session import connected
from millrace.client import Connection, Node
from millrace.wire import messages
from millrace.wire.schema import Request

# Every API that clients may call, including those that this client does not use.
API_NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    60: "DescribeCluster",
    61: "DescribeProducers",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}


@click.command("broker-api-versions", cls=KafkaCommand)
@broker_options()
def command(*, target: Target) -> None:
    """Show the versions of each request that the brokers support."""
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"{messages.__name__}.{module.name}")
    with connected(target) as session:
        for broker in session.run(describe_cluster(session.client)).brokers:
            click.echo(_describe(broker, session.run(session.client.broker(broker.id))))


def _describe(broker: Node, connection: Connection) -> str:
    rack = "null" if broker.rack is None else broker.rack
    keys = sorted({*API_NAMES, *connection.api_versions})
    apis = ",\n".join(f"\t{_api(key, connection.api_versions.get(key))}" for key in keys)
    return f"{connection.address} (id: {broker.id} rack: {rack} isFenced: false) -> (\n{apis}\n)"


def _api(key: int, offered: tuple[int, int] | None) -> str:
    label = f"{API_NAMES.get(key, 'UNKNOWN')}({key}):"
    if offered is None:
        return f"{label} UNSUPPORTED"
    lowest, highest = offered
    versions = str(highest) if lowest == highest else f"{lowest} to {highest}"
    return f"{label} {versions}{_usable(Request.by_key.get(key), lowest, highest)}"


def _usable(ours: type[Request] | None, lowest: int, highest: int) -> str:
    if ours is None:
        return ""
    if ours.versions[-1] < lowest:
        return " [unusable: node too new]"
    if ours.versions[0] > highest:
        return " [unusable: node too old]"
    return f" [usable: {min(highest, ours.versions[-1])}]"
