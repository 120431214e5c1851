import pytest
from kio.schema.errors import ErrorCode

from millrace.errors import Error, KafkaError, check, error_of


def test_codes_names_and_retriability_are_kafkas() -> None:
    ours = {error.name: (int(error), error.retriable) for error in Error}
    kafkas = {code.name.upper(): (int(code), code.retriable) for code in ErrorCode}
    assert ours == kafkas


@pytest.mark.parametrize("error", Error)
def test_every_error_has_a_default_message(error: Error) -> None:
    assert error.message.endswith(".")
    assert Error(error.value) is error


def test_an_exception_has_the_default_message_unless_given_another() -> None:
    assert KafkaError(Error.NOT_COORDINATOR).message == Error.NOT_COORDINATOR.message
    told = KafkaError(Error.INVALID_CONFIG, "retention.ms must be a number")
    assert told.error is Error.INVALID_CONFIG
    assert told.message == "retention.ms must be a number"
    assert str(told) == "INVALID_CONFIG: retention.ms must be a number"


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert error_of(Error.NOT_COORDINATOR.value) is Error.NOT_COORDINATOR
    assert error_of(9999) is Error.UNKNOWN_SERVER_ERROR


def test_the_error_of_a_response_is_raised() -> None:
    check(Error.NONE)
    with pytest.raises(KafkaError, match="INVALID_CONFIG: it must be a number"):
        check(Error.INVALID_CONFIG.value, "it must be a number")
