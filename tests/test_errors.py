import pytest
from kio.schema.errors import ErrorCode

from millrace.errors import Error, KafkaError


def test_codes_names_and_retriability_are_kafkas() -> None:
    ours = {error.name: (int(error), error.retriable) for error in Error}
    kafkas = {code.name.upper(): (int(code), code.retriable) for code in ErrorCode}
    assert ours == kafkas


@pytest.mark.parametrize("error", Error)
def test_every_error_has_a_sentence_for_its_reader(error: Error) -> None:
    assert error.message.endswith(".")
    assert Error(error.value) is error


def test_an_exception_says_what_its_error_says_unless_told_more() -> None:
    assert KafkaError(Error.NOT_COORDINATOR).message == Error.NOT_COORDINATOR.message
    told = KafkaError(Error.INVALID_CONFIG, "retention.ms must be a number")
    assert told.error is Error.INVALID_CONFIG
    assert told.message == "retention.ms must be a number"
    assert str(told) == "INVALID_CONFIG: retention.ms must be a number"
