"""Keys and values as text."""

import datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.trident import StateError
from millrace.trident.state.text import decode, encode, encode_key

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.dates()
    | st.times()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("$ab") | st.integers(), inner),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(values)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    assert decode(encode(value)) == value


def test_a_key_is_readable_and_does_not_depend_on_the_order_of_a_dictionary() -> None:
    assert encode_key(["straße", 1]) == '["straße",1]'
    assert encode_key([{"b": 1, "a": 2}]) == encode_key([{"a": 2, "b": 1}])
    assert decode(encode(Decimal("1.50"))) == Decimal("1.50")
    assert decode(encode(datetime.timedelta(seconds=90))) == datetime.timedelta(seconds=90)


def test_a_value_without_a_form_as_text_is_refused() -> None:
    with pytest.raises(StateError, match="type set cannot be kept"):
        encode({1, 2})
