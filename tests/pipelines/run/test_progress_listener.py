"""The offsets that a batch has reached, from Spark's report on it."""

from types import SimpleNamespace

from millrace.pipelines.run.progress_listener import reached


def test_two_inputs_from_one_topic_reach_the_offset_of_the_slower_one() -> None:
    progress = SimpleNamespace(
        sources=[
            SimpleNamespace(endOffset='{"t":{"0":5,"1":2}}'),
            SimpleNamespace(endOffset='{"t":{"0":3}}'),
            SimpleNamespace(endOffset="12"),
            SimpleNamespace(endOffset=None),
        ]
    )
    assert reached(progress) == {"t": {0: 3, 1: 2}}
