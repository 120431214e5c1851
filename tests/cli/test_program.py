import subprocess
import sys

from .conftest import Run

HEAVY = ("confluent_kafka", "rich", "asyncio", "millrace.broker", "millrace.wire")


def loaded_by(code: str) -> set[str]:
    listing = "import sys; print(*sys.modules)"
    command = [sys.executable, "-c", f"import contextlib\n{code}\n{listing}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_help_imports_no_command_and_no_client_library() -> None:
    code = "import millrace.cli\nwith contextlib.suppress(SystemExit): millrace.cli.millrace.main(['--help'])"
    loaded = loaded_by(code)
    assert not loaded.intersection(HEAVY)
    assert "millrace.cli.topics" not in loaded


def test_up_imports_neither_client_library_nor_rich() -> None:
    loaded = loaded_by("import millrace.cli.up, millrace.cli.terminal.foreground, millrace.broker")
    assert not loaded.intersection({"confluent_kafka", "rich"})


def test_help_lists_every_command(run_alone: Run) -> None:
    listed = run_alone("--help").stdout
    for name in ("up", "broker", "doctor", "topics", "console-consumer", "dump-log", "producer-perf-test"):
        assert f"  {name} " in listed


def test_every_command_has_help_and_version(run_alone: Run) -> None:
    from millrace.cli.terminal.program import COMMANDS

    for name in (name for section in COMMANDS.values() for name in section):
        assert run_alone(name, "--help").exit_code == 0
        assert run_alone(name, "--version").stdout.startswith("millrace ")


def test_an_unknown_command_suggests_the_nearest(run_alone: Run) -> None:
    result = run_alone("topcs")
    assert result.exit_code == 1
    assert result.stderr == "error: there is no command 'topcs'; did you mean topics?\n"


def test_kafkas_script_names_are_accepted(run: Run, topic: str) -> None:
    assert run("kafka-topics.sh", "--create", "--topic", topic).stdout == f"Created topic {topic}.\n"


def test_kafkas_script_that_starts_a_broker_is_accepted(run_alone: Run) -> None:
    result = run_alone("bin/kafka-server-start.sh", "/nonexistent/server.properties")
    assert result.stderr == "error: cannot read /nonexistent/server.properties: No such file or directory\n"


def test_a_wrong_option_is_one_error_with_exit_code_1(run_alone: Run) -> None:
    result = run_alone("topics", "--nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: No such option")
    assert "Traceback" not in result.stderr


def test_an_unexpected_error_shows_its_traceback_only_for_debugging(run_alone: Run) -> None:
    arguments = ("producer-perf-test", "--topic", "t", "--num-records", 1, "--throughput", -1)
    missing = ("--payload-file", "/nonexistent")
    assert run_alone(*arguments, *missing).stderr == "error: /nonexistent: No such file or directory\n"
    assert isinstance(run_alone(*arguments, *missing, MILLRACE_DEBUG="1").exception, FileNotFoundError)
