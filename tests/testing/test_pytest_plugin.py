"""The fixtures that come with the package, in another project."""

import pytest

pytest_plugins = ["pytester"]

PROJECT = """
from confluent_kafka import Producer

seen = []

def publish(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    producer.produce("orders", b"one coffee")
    return producer.flush(30)

def test_a_fresh_broker(millrace_broker):
    assert publish(millrace_broker.bootstrap) == 0
    seen.append(millrace_broker)

def test_another_fresh_broker(millrace_broker):
    assert "orders" not in millrace_broker.broker.node.metadata.image.topics
    assert millrace_broker is not seen[0]

def test_the_session_s_broker(millrace_session_broker):
    assert publish(millrace_session_broker.bootstrap) == 0
    seen.append(millrace_session_broker)

def test_the_same_broker_again(millrace_session_broker):
    assert millrace_session_broker is seen[-1]
    assert "orders" in millrace_session_broker.broker.node.metadata.image.topics
"""


def test_fixtures_need_no_import(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT)
    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=4)


def test_the_plugin_is_cheap_for_projects_that_do_not_use_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            assert "millrace.broker" not in sys.modules
            assert "millrace.testing" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-p", "no:asyncio").assert_outcomes(passed=1)
