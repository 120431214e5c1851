"""Options that the Kafka tools share, parsed the way Kafka's own tools parse them."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from millrace import __version__
from millrace.cli.terminal.errors import CommandError
from millrace.config.properties import parse_properties

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "MILLRACE_BOOTSTRAP"

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The brokers that a command connects to, and the client properties from a file."""

    bootstrap: str
    properties: Mapping[str, str]
    is_given: bool = True

    def or_else(self, bootstrap: str | None) -> "Target":
        """This target if the command line names brokers, else these brokers."""
        return self if self.is_given or not bootstrap else Target(bootstrap, self.properties)

    def refuse_security(self, programs: str) -> None:
        """Raise CommandError if the properties ask for TLS or SASL, which these programs do not speak yet."""
        protocol = self.properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol != "PLAINTEXT":
            raise CommandError(
                f"{programs} connect in plain text only, and the client properties ask for {protocol};"
                " name a PLAINTEXT listener of the broker"
            )


class ManyValues(click.Option):
    """An option that takes every word up to the next option: `--producer-props acks=1 linger.ms=5`."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        super().__init__(*names, **settings | {"multiple": True})


class KafkaCommand(click.Command):
    """A command whose options may be abbreviated or written with one dash, as Kafka's tools allow."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        settings.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **settings)
        self.params.append(
            click.Option(
                ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._spell_out(ctx, args)))

    def _spell_out(self, ctx: click.Context, arguments: list[str]) -> Iterator[str]:
        options = {name: option for option in self.get_params(ctx) for name in option.opts}
        greedy: str | None = None
        for argument in arguments:
            if not argument.startswith("-"):
                if greedy is not None:
                    yield greedy
                yield argument
                continue
            spelled = _full_name(argument, options)
            greedy = spelled if isinstance(options.get(spelled), ManyValues) else None
            if greedy is None:
                yield spelled


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"millrace {__version__}")
        ctx.exit()


def _full_name(argument: str, options: Iterable[str]) -> str:
    name, equals, value = argument.partition("=")
    if not name.startswith("--") and len(name) > 2:
        name = f"-{name}" if f"-{name}" in options else name
    if name.startswith("--") and name not in options:
        candidates = [option for option in options if option.startswith(name)]
        name = candidates[0] if len(candidates) == 1 else name
    return name + equals + value


def broker_options(
    *, config_names: tuple[str, ...] = (), broker_list: bool = True
) -> Callable[[Function], Function]:
    """Add the options that name the brokers; the command gets them as `target`.

    `config_names` are further names of --command-config; `broker_list` says whether --broker-list is the old
    name of --bootstrap-server.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_target(
            bootstrap_server: str | None,
            command_config: Path | None,
            zookeeper: str | None,
            new_consumer: bool,
            **rest: Any,
        ) -> Any:
            properties = read_properties(command_config) if command_config else {}
            target = Target(
                _bootstrap(bootstrap_server, properties), properties, bootstrap_server is not None
            )
            if zookeeper is not None:
                click.echo(
                    f"note: --zookeeper is not needed; connecting to the broker at {target.bootstrap}",
                    err=True,
                )
            if new_consumer:
                click.echo("note: --new-consumer is not needed; every consumer is a new one", err=True)
            return function(target=target, **rest)

        servers = ["--bootstrap-server", *(["--broker-list"] if broker_list else [])]
        for option in (
            click.option("--zookeeper", metavar="HOST:PORT", hidden=True),
            click.option("--new-consumer", is_flag=True, hidden=True),
            click.option(
                "--command-config",
                *config_names,
                "command_config",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Properties file for the client.",
            ),
            click.option(
                *servers,
                "bootstrap_server",
                metavar="HOST:PORT,...",
                help=f"Brokers to connect to.  [default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP}]",
            ),
        ):
            with_target = option(with_target)
        return with_target

    return decorate


def _bootstrap(given: str | None, properties: Mapping[str, str]) -> str:
    return (
        given
        or properties.get("bootstrap.servers")
        or os.environ.get(BOOTSTRAP_VARIABLE)
        or DEFAULT_BOOTSTRAP
    )


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file. Raises CommandError with the file's name."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a text file in UTF-8") from error


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parse `key=value` words; the last value of a key counts."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {pair}: write it as key=value")
        parsed[name] = value
    return parsed


def exactly_one(**given: Any) -> str:
    """The only one of these options that was given. Raises UsageError unless it is exactly one."""
    chosen = [name for name, value in given.items() if value]
    if len(chosen) != 1:
        names = [f"--{name.replace('_', '-')}" for name in given]
        raise click.UsageError(
            f"give exactly one of {', '.join(names[:-1])} and {names[-1]}", click.get_current_context()
        )
    return chosen[0]
