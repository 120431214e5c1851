from array import array

from millrace.cli.producer_perf_test.latency import MAX_SAMPLES, Latencies


def test_lines_have_kafkas_wording() -> None:
    latencies = Latencies(4)
    latencies.add(array("d", [1.0, 2.0, 3.0, 10.0]))
    assert latencies.window_line(2.0, 1024 * 1024) == (
        "4 records sent, 2.0 records/sec (2.00 MB/sec), 4.0 ms avg latency, 10.0 ms max latency."
    )
    assert latencies.total_line(2.0, 1024 * 1024) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.00 ms avg latency, 10.00 ms max latency,"
        " 3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )


def test_sending_nothing_is_not_an_error() -> None:
    assert Latencies(1).total_line(1.0, 0).startswith("0 records sent, 0.000000 records/sec")


def test_many_latencies_are_sampled_evenly() -> None:
    latencies = Latencies(3 * MAX_SAMPLES)
    for _ in range(10):
        latencies.add(array("d", [1.0] * 5 + [100.0] * 5))
    line = latencies.total_line(1.0, 1)
    assert line.startswith("100 records sent")
    assert "50.50 ms avg" in line
