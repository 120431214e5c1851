"""Rows of one key, merged column by column."""

from millrace.pipelines.views.merge import Layer, Merge


def test_rows_merge_column_by_column() -> None:
    merge = Merge(
        ["k"], {"n": "sum", "low": "min", "high": "max", "at": "last", "all": lambda a, b: [*a, *b]}
    )
    older = {"k": 1, "n": 2, "low": 3, "high": 3, "at": "x", "all": [1]}
    newer = {"k": 1, "n": 5, "low": 4, "high": 4, "at": "y", "all": [2]}
    assert merge(older, newer) == {"k": 1, "n": 7, "low": 3, "high": 4, "at": "y", "all": [1, 2]}
    assert merge(older, None) == older
    assert merge(None, newer) == newer
    assert merge(older, {"k": 1, "n": None})["n"] == 2


def test_rows_of_an_aggregation_replace_each_other_and_others_accumulate() -> None:
    merge = Merge(["k"], {"n": "sum"})
    for accumulates, expected in ((False, 2), (True, 3)):
        layer = Layer(merge, accumulates=accumulates)
        assert layer.put({"k": "a", "n": 1}) == "a"
        layer.put({"k": "a", "n": 2})
        assert layer.rows == {"a": {"k": "a", "n": expected}}
