"""The part of a topic's configuration that decides about a batch, made ready for the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.wire.compression import CODECS_BY_NAME, Codec
from millrace.wire.records import CODEC_MASK, BatchHeader

if TYPE_CHECKING:
    from millrace.config import LogConfig

UNLIMITED_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The rules of a topic for its batches."""

    partition: str
    max_message_bytes: int
    # How far a record's timestamp may lie in the past and in the future.
    before_max_ms: int
    after_max_ms: int
    is_log_append_time: bool
    is_compacted: bool
    # What batches are stored with; None leaves it to their producers.
    codec: Codec | None
    codec_level: int | None
    # Whether a batch is stored just as it was sent, unless its header shows a timestamp out of bounds.
    stores_as_sent: bool

    @classmethod
    def of(cls, config: LogConfig, partition: str) -> AppendRules:
        """The rules of a topic for one of its partitions."""
        codec = CODECS_BY_NAME.get(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        is_compacted = "compact" in config.cleanup_policy
        limits_the_past = config.message_timestamp_before_max_ms < UNLIMITED_MS
        return cls(
            partition=partition,
            max_message_bytes=config.max_message_bytes,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            is_log_append_time=is_log_append_time,
            is_compacted=is_compacted,
            codec=codec,
            codec_level=levels.get(codec) if codec is not None else None,
            stores_as_sent=not (is_compacted or is_log_append_time or limits_the_past or codec is not None),
        )

    def concern_records(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header of a batch does not tell all that these rules ask for."""
        if self.is_compacted or (self.codec is not None and self.codec != header.attributes & CODEC_MASK):
            return True
        return not self.is_log_append_time and (
            self.before_max_ms < UNLIMITED_MS or header.max_timestamp > now_ms + self.after_max_ms
        )
