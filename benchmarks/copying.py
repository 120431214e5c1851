"""How the place of 1 MB in memory, and where it goes in a file, decide how long writing it takes.

Run as `python -m benchmarks.copying`: microseconds of CPU per write into pages that are cached, the best of
several rounds, by how far the one lies behind the beginning of a page, and the other.
"""

import mmap
import os
import tempfile
import time

SIZE = 1_000_000
IN_MEMORY = (0, 1, 12, 32, 64, 100, 2048)
IN_FILE = (0, 1, 12, 100, 2048)
WRITES = 50
ROUNDS = 5


def main() -> None:
    with tempfile.TemporaryFile() as file, mmap.mmap(-1, 4 << 20) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:] = b"x" * len(memory)
        for number in range(WRITES + 1):
            os.pwrite(file.fileno(), memory[: 1 << 20], number << 20)
        print("in memory | " + " ".join(f"{f'in file {place}':>12}" for place in IN_FILE))
        with memoryview(memory) as view:
            for source in IN_MEMORY:
                with view[source : source + SIZE] as piece:
                    times = [_write(file.fileno(), piece, place) for place in IN_FILE]
                print(f"{source:9} | " + " ".join(f"{seconds * 1e6:12.0f}" for seconds in times))


def _write(fd: int, piece: memoryview, place: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for number in range(WRITES):
            os.pwrite(fd, piece, (number << 20) + place)
        best = min(best, (time.process_time() - started) / WRITES)
    return best


if __name__ == "__main__":
    main()
