"""Configuration: every option declared once, under Kafka's own name."""

from .broker import BROKER_OPTIONS, BrokerConfig
from .group import GROUP_OPTIONS, GroupConfig
from .listeners import Listener
from .options import ConfigError, Kind, Option, Scope, Value
from .properties import parse_properties
from .topic import TOPIC_OPTIONS, LogConfig

__all__ = [
    "BROKER_OPTIONS",
    "GROUP_OPTIONS",
    "TOPIC_OPTIONS",
    "BrokerConfig",
    "ConfigError",
    "GroupConfig",
    "Kind",
    "Listener",
    "LogConfig",
    "Option",
    "Scope",
    "Value",
    "parse_properties",
]
