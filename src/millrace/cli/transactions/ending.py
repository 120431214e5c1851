"""Ends transactions by force: an abort marker in one partition, or the whole one by fencing its producer."""

from millrace.cli.client import Client
from millrace.cli.coordinators import KeyType, find_coordinators, until_coordinated
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import Place
from millrace.cli.transactions.producers import describe_producers, leader_of
from millrace.wire.messages import write_txn_markers as marker_api
from millrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

# Nobody goes on with the producer id that fencing hands out, so its transactions need no time.
FENCING_TIMEOUT_MS = 1


def marker_for(client: Client, place: Place, start_offset: int) -> marker_api.WritableTxnMarker:
    """The marker that aborts the transaction which begins at an offset of a partition."""
    for producer in describe_producers(client, {place: leader_of(client, place)})[place]:
        if producer.current_txn_start_offset == start_offset:
            return abort_marker(
                place, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
            )
    raise CommandError(
        f"Could not find any open transactions starting at offset {start_offset} on partition"
        f" {place[0]}-{place[1]}"
    )


def abort_marker(
    place: Place, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> marker_api.WritableTxnMarker:
    """A marker in the name of a coordinator; none has been at work before a producer's first end."""
    topic, index = place
    return marker_api.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=max(coordinator_epoch, 0),
        transaction_result=False,
        topics=[marker_api.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
    )


def write_marker(client: Client, place: Place, marker: marker_api.WritableTxnMarker) -> None:
    """Have the partition's leader write the marker."""
    request = marker_api.WriteTxnMarkersRequest(markers=[marker])
    response = client.broker(leader_of(client, place)).send(request, marker_api.WriteTxnMarkersResponse)
    for result in response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                check(partition.error_code)


def force_terminate(client: Client, transactional_id: str) -> None:
    """Abort the transaction of a transactional id, and fence the producer that has begun it."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
    )

    def ask() -> None:
        coordinators = find_coordinators(client, [transactional_id], KeyType.TRANSACTION)
        connection = client.broker(coordinators[transactional_id].node_id)
        check(connection.send(request, InitProducerIdResponse).error_code)

    until_coordinated(client, ask)
