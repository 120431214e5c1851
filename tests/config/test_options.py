"""Every option is declared once, and everything derived from the declarations agrees with them."""

import dataclasses
from pathlib import Path

import pytest

from millrace.config import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerConfig, ConfigError, LogConfig, Option
from millrace.config.known import find_broker_option, inert_options
from millrace.config.reference import render

ALL_OPTIONS = [*TOPIC_OPTIONS.values(), *BROKER_OPTIONS.values(), *inert_options().values()]


@pytest.mark.parametrize("option", ALL_OPTIONS, ids=lambda option: option.name)
def test_a_default_survives_being_written_and_read(option: Option) -> None:
    assert option.parse(option.text(option.default)) == option.default


def test_every_synonym_is_a_broker_option() -> None:
    for option in TOPIC_OPTIONS.values():
        for synonym in option.synonyms:
            assert synonym in BROKER_OPTIONS, option.name


def test_no_option_is_both_honoured_and_without_effect() -> None:
    assert not BROKER_OPTIONS.keys() & inert_options().keys()


def test_listener_prefixes_are_known() -> None:
    assert find_broker_option("listener.name.external.ssl.keystore.location") is not None
    assert find_broker_option("listener.name.external.nonsense") is None


def test_a_doubles_text_is_javas() -> None:
    option = BROKER_OPTIONS["log.cleaner.io.max.bytes.per.second"]
    assert option.text(option.default) == "1.7976931348623157E308"


def test_a_log_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().segment_bytes = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"retension.ms": "1"}, "did you mean retention.ms?"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "must not be greater than"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"leader.replication.throttled.replicas": "0:1,x"}, "partition:broker pairs"),
        ({"retention.ms": "-2"}, "retention.ms must be at least -1, got -2"),
        ({"retention.ms": ""}, "retention.ms must be a whole number, got ''"),
        ({"retention.ms": "1_000"}, "retention.ms must be a whole number, got '1_000'"),
        ({"min.cleanable.dirty.ratio": "0.2_5"}, "must be a number, got '0.2_5'"),
    ],
)
def test_an_invalid_topic_config_is_rejected(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig().log_config(configs)


@pytest.mark.parametrize(
    ("configs", "attribute", "value"),
    [
        ({"cleanup.policy": "compact, delete"}, "cleanup_policy", ("compact", "delete")),
        ({"cleanup.policy": ""}, "cleanup_policy", ()),
        ({"compression.gzip.level": "-1"}, "compression_gzip_level", -1),
        ({"leader.replication.throttled.replicas": "*"}, "leader_replication_throttled_replicas", ("*",)),
        ({"preallocate": "TRUE"}, "preallocate", True),
        ({"min.cleanable.dirty.ratio": "0.01"}, "min_cleanable_dirty_ratio", 0.01),
    ],
)
def test_topic_configs_are_read_by_their_type(configs: dict[str, str], attribute: str, value: object) -> None:
    assert getattr(BrokerConfig().log_config(configs), attribute) == value


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == render(), "run: python -m millrace.config > docs/configuration.md"
