"""Kafka's error codes, and the exception that carries one."""

from enum import IntEnum
from typing import Self

RETRIABLE = True


class Error(IntEnum):
    """Error codes of Apache Kafka 4.3: code, default message, whether a client may simply try again."""

    message: str
    retriable: bool

    def __new__(cls, code: int, message: str, retriable: bool = False) -> Self:
        error = int.__new__(cls, code)
        error._value_ = code
        error.message = message
        error.retriable = retriable
        return error

    UNKNOWN_SERVER_ERROR = -1, "The broker met an unexpected error; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the range this log holds."
    CORRUPT_MESSAGE = (
        2,
        "The batch is corrupt: bad checksum or size, or no key in a compacted topic.",
        RETRIABLE,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not host the topic or partition.", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = (
        5,
        "The partition has no leader just now; an election is under way.",
        RETRIABLE,
    )
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead, or does not replicate, the partition.", RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request timed out.", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for the partition.", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the broker accepts (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, "Another broker has become the controller since."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, "The connection closed before a response arrived.", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", RETRIABLE
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic is not valid for this operation."
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than a segment of the log (segment.bytes)."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas asks.", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The batch was written, but to fewer in-sync replicas than required.",
        RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The group has moved on from this generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the group, or offers none."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committed offset data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions must be at least 1."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor must lie between 1 and the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", RETRIABLE
    INVALID_REQUEST = 42, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format of the log cannot serve this request."
    POLICY_VIOLATION = 44, "The request breaks a configured policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is out of date."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow this operation."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout exceeds transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on the same transaction is still going on.", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over this producer."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another operation of the same request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed while the log was being accessed.", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker no longer knows this producer id; its records may have expired."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The broker does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns nor may renew the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be requested over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no group of this id."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is unknown.", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the expected one.", RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener like the one this request came through.", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is switched off (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the broker's.", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch of the request is newer than the broker's.", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client cannot read the partition's compression type."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader's high watermark has not caught up yet.", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id just assigned."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another consumer has registered with the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that could lead the partition is available.", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition already has the wanted leader.", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of the partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, "A record failed the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, "Some offsets wait for a transaction to end.", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for now.", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer has taken over this transactional id."
    RESOURCE_NOT_FOUND = 91, "The request names a resource that does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "Sender or receiver is not among the expected voters."
    INVALID_UPDATE_VERSION = 95, "The version to update to is not valid."
    FEATURE_UPDATE_FAILED = 96, "The finalized features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The principal of a forwarded request could not be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker hosts no topic of this id.", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker already uses this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker has registered under this id."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to another topic id than the request names.", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", RETRIABLE
    INELIGIBLE_REPLICA = 107, "A replica of the new in-sync set may not join it."
    NEW_LEADER_ELECTED = 108, "The partition changed as asked, and got another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset now lives in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member is fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is out of date; heartbeat first, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The broker's registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it to go on with this transactional id."
    INVALID_RECORD_STATE = 121, "The record's delivery state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session is unknown.", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not the expected one.", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share group's state has moved on from this epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, "The voter already belongs to the voter set."
    VOTER_NOT_FOUND = 127, "The voter does not belong to the voter set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is out of date; bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology's epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are too many share sessions.", RETRIABLE


class KafkaError(Exception):
    """A failure that is reported to the client as a Kafka error code."""

    def __init__(self, error: Error, message: str | None = None) -> None:
        self.error = error
        self.message = error.message if message is None else message
        super().__init__(f"{error.name}: {self.message}")


def error_of(code: int) -> Error:
    """The error with this code; UNKNOWN_SERVER_ERROR for a code that Kafka 4.3 does not have."""
    return _BY_CODE.get(code, Error.UNKNOWN_SERVER_ERROR)


def check(code: int, message: str | None = None) -> None:
    """Raise the error that a response carries, if it carries one."""
    if code != Error.NONE:
        raise KafkaError(error_of(code), message)


_BY_CODE = {error.value: error for error in Error}
