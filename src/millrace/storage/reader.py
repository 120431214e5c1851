"""Finding the batches that a read asks for in a log's segments."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from millrace.storage.file_slice import FileSlice
from millrace.storage.segment import Segment

_REMEMBERED_POSITIONS = 32


class Reader:
    """Reads the segments of one log, whose list it shares."""

    __slots__ = ("_positions", "_segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        # Offset to segment and position, for the offsets where recent reads ended.
        self._positions: dict[int, tuple[Segment, int]] = {}

    def forget_positions(self) -> None:
        """The segments have changed."""
        self._positions.clear()

    def segment_number(self, offset: int) -> int:
        """The place of the segment that holds an offset."""
        return max(bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1, 0)

    def read(
        self, offset: int, max_bytes: int, min_one_batch: bool, up_to: int, log_end_offset: int
    ) -> FileSlice | None:
        """Whole batches of one segment, from the one that holds offset on."""
        found = self._positions.get(offset) or self._locate(offset)
        if found is None:
            return None
        segment, start = found
        if up_to == log_end_offset and segment is self._segments[-1]:
            end, next_offset = segment.size, up_to
        else:
            end, next_offset = self._end_of(segment, up_to, log_end_offset)
        if end - start > max_bytes:
            cut, header = segment.cut(start, start + max_bytes)
            if cut > start:
                end, next_offset = cut, header.base_offset
            elif min_one_batch:
                end, next_offset = start + header.size, header.next_offset
            else:
                return None
        if end <= start:
            return None
        # Most readers continue where they stopped, which needs no search.
        self._remember(next_offset, segment, end)
        return FileSlice(segment.file, start, end - start, next_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        for segment in self._segments[self.segment_number(offset) :]:
            # Compaction may have taken what lay between a segment's last batch and the next segment.
            found = segment.locate(offset)
            if found is not None:
                self._remember(offset, segment, found[0])
                return segment, found[0]
        return None

    def _end_of(self, segment: Segment, up_to: int, log_end_offset: int) -> tuple[int, int]:
        """Largest end of a read in a segment, and the offset that follows."""
        if segment is self._segments[-1]:
            next_offset = log_end_offset
        else:
            next_offset = self._segments[self.segment_number(segment.base_offset) + 1].base_offset
        if up_to >= next_offset:
            return segment.size, next_offset
        remembered = self._positions.get(up_to)
        if remembered is not None and remembered[0] is segment:
            return remembered[1], up_to
        found = segment.locate(up_to)
        if found is None:
            return segment.size, up_to
        self._remember(up_to, segment, found[0])
        return found[0], up_to

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if position == segment.size and segment is not self._segments[-1]:
            return
        positions = self._positions
        if len(positions) >= _REMEMBERED_POSITIONS and offset not in positions:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)
