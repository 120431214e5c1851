"""CPU time and memory of a broker process, including its child processes."""

import time

import psutil


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far, including finished threads."""
    return sum(_cpu_clock(process) for process in family(pid))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    return sum(process.memory_info().rss for process in family(pid))


def family(pid: int) -> list[psutil.Process]:
    """A process and its children."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu_clock(process: psutil.Process) -> float:
    # Linux gives every process a CPU clock in nanoseconds; cpu_times() counts in ticks of 10 ms, too
    # coarse for a broker that serves a gigabyte in a tenth of a second.
    try:
        return time.clock_gettime((~process.pid << 3) | 2)
    except OSError:
        times = process.cpu_times()
        return float(times.user + times.system)
