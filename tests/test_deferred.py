"""Values that arrive later: converted, failed, cancelled, awaited."""

import asyncio

import pytest

from millrace.deferred import Deferred, gather
from millrace.errors import Error, KafkaError

REFUSED = KafkaError(Error.NOT_COORDINATOR)


def outcome_of(deferred: Deferred) -> list[object]:
    received: list[object] = []
    deferred.then(received.append)
    return received


def test_the_receiver_gets_the_value_when_it_arrives() -> None:
    deferred: Deferred[int] = Deferred()
    received = outcome_of(deferred)
    assert received == []
    deferred.resolve(1)
    deferred.resolve(2)
    assert received == [1]


def test_a_value_that_is_there_already_is_received_at_once() -> None:
    assert outcome_of(Deferred.of(1)) == [1]
    assert Deferred.of(1).result() == 1


@pytest.mark.parametrize("resolved_first", [True, False])
def test_conversions_follow_one_another(resolved_first: bool) -> None:
    deferred: Deferred[int] = Deferred()
    if resolved_first:
        deferred.resolve(1)
    converted = deferred.convert(lambda value: value + 1).convert(str)
    deferred.resolve(1)
    assert outcome_of(converted) == ["2"]


@pytest.mark.parametrize("failed_first", [True, False])
def test_an_error_skips_conversions_until_one_handles_it(failed_first: bool) -> None:
    deferred: Deferred[int] = Deferred()
    if failed_first:
        deferred.fail(REFUSED)
    converted = deferred.convert(lambda value: value + 1).convert(str, on_error=str).convert(len)
    deferred.fail(REFUSED)
    assert outcome_of(converted) == [len(str(REFUSED))]


def test_an_error_that_is_not_converted_reaches_the_receiver() -> None:
    deferred: Deferred[int] = Deferred()
    converted = deferred.convert(str)
    deferred.fail(REFUSED)
    assert outcome_of(converted) == [REFUSED]
    with pytest.raises(KafkaError):
        converted.result()


@pytest.mark.parametrize("resolved_first", [True, False])
def test_a_failing_conversion_fails_the_deferred(resolved_first: bool) -> None:
    deferred: Deferred[int] = Deferred()
    if resolved_first:
        deferred.resolve(0)
    converted = deferred.convert(lambda value: 1 // value)
    deferred.resolve(0)
    with pytest.raises(ZeroDivisionError):
        converted.result()


def test_a_cancelled_deferred_drops_its_value() -> None:
    cancelled: list[str] = []
    deferred: Deferred[int] = Deferred(on_cancel=lambda: cancelled.append("cancelled"))
    received = outcome_of(deferred)
    deferred.cancel()
    deferred.cancel()
    deferred.resolve(1)
    assert (received, cancelled) == ([], ["cancelled"])


async def test_it_can_be_awaited_before_and_after_it_is_resolved() -> None:
    deferred: Deferred[int] = Deferred()
    asyncio.get_running_loop().call_soon(deferred.resolve, 1)
    assert await deferred == 1
    assert await deferred == 1


async def test_awaiting_a_failed_one_raises_its_error() -> None:
    deferred: Deferred[int] = Deferred()
    asyncio.get_running_loop().call_soon(deferred.fail, REFUSED)
    with pytest.raises(KafkaError):
        await deferred


def test_gathered_values_are_combined_when_the_last_one_is_there() -> None:
    first, second = Deferred[int](), Deferred[int]()
    gathered = gather([first, 2, second, Deferred.of(4)], sum)
    assert isinstance(gathered, Deferred)
    second.resolve(3)
    assert not gathered.resolved
    first.resolve(1)
    assert gathered.result() == 10


def test_values_that_are_there_are_combined_at_once() -> None:
    assert gather([1, 2], sum) == 3


def test_an_error_fails_what_is_gathered() -> None:
    first = Deferred[int]()
    gathered = gather([first, 2], sum)
    assert isinstance(gathered, Deferred)
    first.fail(REFUSED)
    with pytest.raises(KafkaError):
        gathered.result()
