"""Failures of the client itself, under the error codes that Kafka's clients use for them."""

from millrace.errors import Error, KafkaError


class BrokerUnreachable(KafkaError):
    """No connection could be made, so nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.NETWORK_EXCEPTION, message)


class ConnectionLost(KafkaError):
    """The connection closed before the response arrived; the broker may have handled the request."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.NETWORK_EXCEPTION, message)


class ResponseTimeout(KafkaError):
    """No response arrived in time; the broker may still be handling the request."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.REQUEST_TIMED_OUT, message)


class ApiNotOffered(KafkaError):
    """The broker does not speak the API, or not in a version that can express the request."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.UNSUPPORTED_VERSION, message)


class UnknownBroker(KafkaError):
    """The cluster has no broker with this id."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.BROKER_NOT_AVAILABLE, message)
