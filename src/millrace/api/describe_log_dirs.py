"""DescribeLogDirs v1-5. v2: flexible. v3: a top-level error. v4: the disk's size. v5: cordoned ones."""

from __future__ import annotations

import logging
import os

from millrace.api.context import Context
from millrace.errors import Error
from millrace.steps import Steps
from millrace.storage.log_dir import LogDir
from millrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

logger = logging.getLogger(__name__)


def handle(ctx: Context, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            wanted.update((topic.topic, index) for index in topic.partitions)
            yield
    response = DescribeLogDirsResponse()
    for log_dir in ctx.services.partitions.log_dirs:
        response.results.append((yield from _describe(ctx, log_dir, wanted)))
    return response


def _describe(
    ctx: Context, log_dir: LogDir, wanted: set[tuple[str, int]] | None
) -> Steps[DescribeLogDirsResult]:
    path = str(log_dir.path.absolute())
    try:
        file_system = os.statvfs(log_dir.path)
    except OSError as error:
        logger.error("cannot read the size of %s: %s", path, error)
        return DescribeLogDirsResult(log_dir=path, error_code=Error.KAFKA_STORAGE_ERROR)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in ctx.services.partitions.in_dir(log_dir):
        if wanted is None or (partition.topic, partition.index) in wanted:
            topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition.index, partition_size=partition.log.size, offset_lag=0
                )
            )
        yield
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=file_system.f_frsize * file_system.f_blocks,
        usable_bytes=file_system.f_frsize * file_system.f_bavail,
    )
