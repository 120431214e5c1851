"""The top-level command: finds a subcommand by name and imports only that one."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from millrace import __version__
from millrace.cli.terminal.errors import CommandError, explain
from millrace.cli.terminal.pasted import repair_pasted

# Each command's name and its line in `millrace --help`. The module has the command's name.
COMMANDS: dict[str, dict[str, str]] = {
    "Run a broker": {
        "up": "Start the platform here and now: a broker and its services.",
        "broker": "Start a broker from a Kafka properties file.",
        "zookeeper": "Start ZooKeeper, which coordinates the brokers of a cluster.",
        "zookeeper-shell": "Look at ZooKeeper's nodes.",
        "doctor": "Check this machine, and say how to fix what is wrong.",
    },
    "Clusters": {
        "cluster": "Start a cluster on this machine, and look at any.",
        "leader-election": "Elect the leaders of partitions.",
        "reassign-partitions": "Move the replicas of partitions to other brokers.",
    },
    "Topics and records": {
        "topics": "Create, list, describe, change and delete topics.",
        "console-producer": "Send the lines of standard input as records.",
        "console-consumer": "Print the records of a topic.",
        "configs": "Show and change the configuration of topics and brokers.",
        "get-offsets": "Print the offsets of partitions.",
        "delete-records": "Delete the records before given offsets.",
    },
    "Groups and transactions": {
        "consumer-groups": "List, describe, rewind and delete consumer groups.",
        "transactions": "List, describe and abort transactions.",
    },
    "Security": {
        "acls": "Add, remove and list access control lists.",
    },
    "Look inside": {
        "log-dirs": "Show the size of partitions on disk.",
        "broker-api-versions": "Show the versions of each request that the brokers support.",
        "dump-log": "Print and verify segment, index and snapshot files.",
    },
    "Pipelines on Spark": {
        "run": "Run a pipeline over the log: live, or over history.",
        "replay": "Rebuild a pipeline's output beside the running one, and switch over.",
        "view": "Serve a batch's result with what a stream adds to it.",
    },
    "Topologies": {
        "topology": "Run a topology of spouts and bolts over the log.",
        "drpc": "Call a function of a topology.",
        "trident": "Run a Trident topology: exactly-once streams with state.",
        "spark-master": "Start the master of a Spark cluster.",
        "spark-worker": "Offer this machine to a Spark cluster.",
    },
    "Services": {
        "registry": "Serve schemas to producers and consumers, with Confluent's API.",
        "rest": "Serve the log to HTTP clients, with Confluent's API.",
        "mqtt": "Serve MQTT clients: messages are records of the log.",
        "mqtt-password": "Add a user to the password file of mqtt.",
    },
    "Measure": {
        "producer-perf-test": "Measure how fast records can be produced.",
        "consumer-perf-test": "Measure how fast records can be consumed.",
    },
}

# Kafka's scripts whose command has another name here.
SCRIPTS = {"server-start": "broker", "zookeeper-server-start": "zookeeper"}

INTERRUPTED = 130


class LazyGroup(click.Group):
    """Imports a command when it is called; reports every error in one line, with exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"millrace.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; `kafka-topics.sh` is `topics`."""
        name = args[0].rpartition("/")[2].removesuffix(".sh").removesuffix(".bat")
        name = name.removeprefix("kafka-")
        name = SCRIPTS.get(name, name)
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "`millrace --help` lists them"
            raise CommandError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, [name, *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        arguments, notes = repair_pasted(sys.argv[1:] if args is None else args)
        for note in notes:
            click.echo(f"note: {note}", err=True)
        try:
            status = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output has closed it; Python must not complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            if os.environ.get("MILLRACE_DEBUG"):
                raise
            click.echo(click.style("error: ", fg="red", bold=True) + explain(error), err=True)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`kafka-X.sh ARGS` is `millrace X ARGS`. Every command has --help.",
)
@click.version_option(__version__, message="millrace %(version)s")
def millrace() -> None:
    """A log that speaks the Apache Kafka protocol, and the tools to work with it."""
