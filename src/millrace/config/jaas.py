"""JAAS configurations, as Kafka's `sasl.jaas.config` options hold them."""

import re

from .options import ConfigError

_OPTION = re.compile(r"""([\w.-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""")
_ENTRY = re.compile(
    r"""\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)((?:[^;"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*);\s*""",
    re.IGNORECASE,
)


def jaas_options(text: str) -> dict[str, str]:
    """The options of a login module: `...PlainLoginModule required username="ada" password="x";`.

    Raises ConfigError, whose text does not repeat the secrets.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ConfigError(
            'sasl.jaas.config takes one login module: CLASS required name="value" ...; with a semicolon at'
            " the end"
        )
    options = {}
    for name, double, single, bare in _OPTION.findall(entry[1]):
        options[name] = re.sub(r"\\(.)", r"\1", double or single) or bare
    return options
