"""Addresses of a broker with several listeners."""

from millrace.testing import Broker


def port_of(broker: Broker, listener: str) -> int:
    names = [listener.name for listener in broker.broker.config.listeners]
    return broker.broker.listeners[names.index(listener)][1]


def address_of(broker: Broker, listener: str) -> str:
    return f"127.0.0.1:{port_of(broker, listener)}"
