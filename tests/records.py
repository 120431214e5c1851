"""Record batches as a producer would send them."""

import time

from millrace.wire.records import Record, build_batch


def batch(*values: bytes) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch(
        Record(offset=offset, timestamp=now_ms, key=None, value=value, headers=())
        for offset, value in enumerate(values)
    )
