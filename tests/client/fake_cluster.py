"""A cluster of scripted brokers, whose leaders, coordinators and controller a test moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from millrace.client import TopicPartition
from millrace.errors import Error
from millrace.wire.codec import decode
from millrace.wire.frames import encode_response, read_request_header
from millrace.wire.messages import list_offsets as offsets_api
from millrace.wire.messages import metadata as metadata_api
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millrace.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from millrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace.wire.schema import Request, Response

OFFERED: tuple[type[Request], ...] = (
    ApiVersionsRequest,
    metadata_api.MetadataRequest,
    offsets_api.ListOffsetsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    FindCoordinatorRequest,
)


class FakeCluster:
    """The shared state of the brokers. Tests change it while clients are connected."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.controller_id = 1
        self.leaders: dict[TopicPartition, int] = {}
        self.coordinators: dict[str, int] = {}
        self.highest: dict[type[Request], int] = {}
        self.on_request: Callable[[int, Request], Response | None] = lambda node_id, request: None
        self.requests: Counter[tuple[int, str]] = Counter()

    def count(self, api: str) -> int:
        """Requests of an API, to all brokers."""
        return sum(count for (_, name), count in self.requests.items() if name == api)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @asynccontextmanager
    async def running(self, brokers: int) -> AsyncIterator[FakeCluster]:
        """Serve as brokers 1, 2, ..."""
        servers = []
        for node_id in range(1, brokers + 1):
            server = await asyncio.start_server(self._serve_as(node_id), "127.0.0.1", 0)
            self.ports[node_id] = server.sockets[0].getsockname()[1]
            servers.append(server)
        try:
            yield self
        finally:
            for server in servers:
                server.close()

    def _serve_as(self, node_id: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(size)
                    header, position = read_request_header(frame)
                    request, _ = decode(Request.by_key[header.api_key], header.api_version, frame, position)
                    response = self._respond(node_id, request, header.api_version)
                    writer.writelines(encode_response(response, header.api_version, header.correlation_id))
            except (asyncio.IncompleteReadError, ConnectionError, Hangup):
                writer.close()

        return serve

    def _respond(self, node_id: int, request: Any, version: int) -> Response:
        self.requests[node_id, type(request).__name__.removesuffix("Request")] += 1
        response = self.on_request(node_id, request)
        if response is not None:
            return response
        match request:
            case ApiVersionsRequest():
                return self._api_versions()
            case metadata_api.MetadataRequest():
                return self._metadata(request)
            case offsets_api.ListOffsetsRequest():
                return self._offsets(node_id, request)
            case FindCoordinatorRequest():
                return self._coordinators(request)
            case CreateTopicsRequest():
                error = Error.NONE if node_id == self.controller_id else Error.NOT_CONTROLLER
                created = [
                    CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics
                ]
                return CreateTopicsResponse(topics=created)
            case DeleteGroupsRequest():
                results = []
                for name in request.groups_names:
                    is_here = self.coordinators.get(name) == node_id
                    error = Error.NONE if is_here else Error.NOT_COORDINATOR
                    results.append(DeletableGroupResult(group_id=name, error_code=error))
                return DeleteGroupsResponse(results=results)
        raise AssertionError(request)

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api.api_key, api.versions[0], self.highest.get(api, api.versions[-1]))
                for api in OFFERED
            ]
        )

    def _metadata(self, request: metadata_api.MetadataRequest) -> metadata_api.MetadataResponse:
        existing = {partition.topic for partition in self.leaders}
        names = existing if request.topics is None else [topic.name or "" for topic in request.topics]
        return metadata_api.MetadataResponse(
            brokers=[
                metadata_api.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in self.ports.items()
            ],
            controller_id=self.controller_id,
            topics=[
                metadata_api.MetadataResponseTopic(
                    error_code=Error.NONE if name in existing else Error.UNKNOWN_TOPIC_OR_PARTITION,
                    name=name,
                    partitions=[
                        metadata_api.MetadataResponsePartition(
                            partition_index=partition.partition, leader_id=leader
                        )
                        for partition, leader in self.leaders.items()
                        if partition.topic == name
                    ],
                )
                for name in names
            ],
        )

    def _offsets(
        self, node_id: int, request: offsets_api.ListOffsetsRequest
    ) -> offsets_api.ListOffsetsResponse:
        """Every partition's offset is the id of the broker that leads it."""
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                leader = self.leaders.get(TopicPartition(topic.name, partition.partition_index))
                error = Error.NONE if leader == node_id else Error.NOT_LEADER_OR_FOLLOWER
                partitions.append(
                    offsets_api.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=error, offset=node_id
                    )
                )
            topics.append(offsets_api.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return offsets_api.ListOffsetsResponse(topics=topics)

    def _coordinators(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = []
        for key in request.coordinator_keys or [request.key]:
            node_id = self.coordinators.get(key, -1)
            error = Error.NONE if node_id >= 0 else Error.COORDINATOR_NOT_AVAILABLE
            found.append(
                Coordinator(key, node_id, "127.0.0.1", self.ports.get(node_id, -1), error_code=error)
            )
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=found)
        return FindCoordinatorResponse(
            error_code=found[0].error_code, node_id=found[0].node_id, host="127.0.0.1", port=found[0].port
        )


class Hangup(Exception):
    """Raised by `on_request`: the broker closes the connection instead of responding."""
