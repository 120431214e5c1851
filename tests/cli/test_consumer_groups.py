"""`millrace consumer-groups`, against a broker with groups of both protocols."""

import json
from pathlib import Path

import pytest

from millrace.client import Connection
from millrace.testing import Broker
from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millrace.wire.messages.describe_groups import DescribeGroupsRequest
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.offset_fetch import OffsetFetchRequest

from ..group_members import commit, members
from .conftest import Run

JUST_SHOW = ("--dry-run",)


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def idle_group(run: Run, broker: Broker, produced: str, group: str) -> str:
    """A group without members that has read one record of each partition of `produced`."""
    commit(broker.bootstrap, group, {(produced, 0): 1, (produced, 1): 1})
    return group


def ends(run: Run, topic: str) -> dict[int, int]:
    lines = run("get-offsets", "--topic", topic).stdout.split()
    return {int(index): int(offset) for _, index, offset in (line.split(":") for line in lines)}


def rows(table: str) -> list[list[str]]:
    """The cells of a table in Kafka's layout, without its header."""
    return [line.split() for line in table.strip().splitlines()[1:]]


def new_offsets(run: Run, group: str, *more: object) -> dict[tuple[str, int], int]:
    result = run("consumer-groups", "--reset-offsets", "--group", group, *more)
    table = result.stdout[result.stdout.index("GROUP ") :]
    return {(topic, int(index)): int(offset) for _, topic, index, offset in rows(table)}


def committed(run: Run, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets, from `--to-current`."""
    return new_offsets(run, group, "--to-current", "--all-topics", *JUST_SHOW)


def test_groups_are_listed_with_type_and_state_on_demand(run: Run, broker: Broker, idle_group: str) -> None:
    assert idle_group in run("consumer-groups", "--list").stdout.split()
    listed = run("consumer-groups", "--list", "--state", "--type").stdout
    header, *lines = listed.splitlines()
    assert header.split() == ["GROUP", "TYPE", "STATE"]
    assert [idle_group, "Classic", "Empty"] in [line.split() for line in lines]
    filtered = run("consumer-groups", "--list", "--state", "empty, Stable", "--type", "CLASSIC").stdout
    assert [idle_group, "Classic", "Empty"] in rows(filtered)
    assert idle_group not in run("consumer-groups", "--list", "--state", "stable").stdout
    assert idle_group not in run("consumer-groups", "--list", "--type", "consumer").stdout


def test_lag_is_printed_for_each_partition(run: Run, produced: str, idle_group: str) -> None:
    result = run("consumer-groups", "--describe", "--group", idle_group)
    end = ends(run, produced)
    assert rows(result.stdout) == [
        [idle_group, produced, str(index), "1", str(end[index]), str(end[index] - 1), "-", "-", "-"]
        for index in (0, 1)
    ]
    assert result.stderr == f"\nConsumer group '{idle_group}' has no active members.\n"
    verbose = run("consumer-groups", "--describe", "--group", idle_group, "--offsets", "--verbose").stdout
    assert verbose.split()[:4] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH"]


def test_the_columns_have_the_widths_of_kafkas_tool(run: Run, produced: str, idle_group: str) -> None:
    empty, header, first, _ = run("consumer-groups", "--describe", "--group", idle_group).stdout.splitlines()
    assert empty == ""
    widths = (("GROUP", max(15, len(idle_group))), ("TOPIC", 15), ("PARTITION", 10), ("CURRENT-OFFSET", 15))
    assert header.startswith(" ".join(name.ljust(width) for name, width in widths))
    assert header.endswith("CONSUMER-ID     HOST            CLIENT-ID")
    assert first.index("-") == idle_group.index("-")


def test_people_get_a_table_as_wide_as_its_contents(
    run: Run, produced: str, idle_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for table in ("consumer_groups", "transactions"):
        monkeypatch.setattr(f"millrace.cli.{table}.table.is_for_people", lambda: True)
    header, *lines = run("consumer-groups", "--describe", "--group", idle_group).stdout.strip().splitlines()
    assert header.split()[:3] == ["GROUP", "TOPIC", "PARTITION"]
    assert len(lines) == 2
    assert len(header) < 15 * len(header.split())
    assert run("transactions", "list").stdout.startswith("TransactionalId")


def test_members_are_printed_with_their_partitions(
    run: Run, broker: Broker, produced: str, group: str
) -> None:
    with members(broker.bootstrap, group, [produced], partitions=2, count=2):
        arguments = ("consumer-groups", "--describe", "--group", group)
        offsets = run(*arguments)
        assert {row[-1] for row in rows(offsets.stdout)} == {"member-1", "member-2"}
        # Nothing is committed yet, so there is no lag.
        assert all((row[3], row[5]) == ("-", "-") for row in rows(offsets.stdout))
        assert offsets.stderr == ""
        output = run(*arguments, "--members", "--verbose").stdout
        assert {(row[3], row[4], row[6]) for row in rows(output)} in (
            {("member-1", "1", f"{produced}:0"), ("member-2", "1", f"{produced}:1")},
            {("member-1", "1", f"{produced}:1"), ("member-2", "1", f"{produced}:0")},
        )
        (state,) = rows(run(*arguments, "--state").stdout)
        assert state == [group, broker.bootstrap, "(1)", "range", "Stable", "2"]


def test_a_static_members_instance_id_is_printed(run: Run, broker: Broker, produced: str, group: str) -> None:
    settings = {"group_instance_id": "first-floor"}
    with members(broker.bootstrap, group, [produced], partitions=2, **settings):
        output = run("consumer-groups", "--describe", "--group", group, "--members").stdout
    assert output.split()[:3] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID"]
    assert rows(output)[0][2] == "first-floor"


def test_groups_of_the_new_protocol_have_epochs(run: Run, broker: Broker, produced: str, group: str) -> None:
    with members(broker.bootstrap, group, [produced], partitions=2, group_protocol="consumer"):
        arguments = ("consumer-groups", "--describe", "--group", group)
        (member,) = rows(run(*arguments, "--members", "--verbose").stdout)
        epoch, assignment = member[5], f"{produced}:0,1"
        assert member[4:] == ["2", epoch, assignment, epoch, assignment]
        (state,) = rows(run(*arguments, "--state", "--verbose").stdout)
        assert state[3:] == ["uniform", "Stable", epoch, epoch, "1"]
        listed = run("consumer-groups", "--list", "--type", "consumer").stdout
        assert [group, "Consumer"] in rows(listed)


def test_several_groups_are_described_at_once(
    run: Run, broker: Broker, produced: str, idle_group: str
) -> None:
    commit(broker.bootstrap, f"{idle_group}-2", {(produced, 0): 0})
    output = run("consumer-groups", "--describe", "--group", f"{idle_group}-2", "--group", idle_group).stdout
    assert output.count("GROUP ") == 2
    assert output.index(f"{idle_group} ") < output.index(f"{idle_group}-2 ")
    everything = run("consumer-groups", "--describe", "--all-groups").stdout
    assert output.strip() in everything


def test_a_group_that_does_not_exist_is_an_error_between_the_others(
    run: Run, produced: str, idle_group: str
) -> None:
    arguments = ("consumer-groups", "--describe", "--group", "missing", "--group", idle_group)
    result = run(*arguments, fails=True)
    assert result.stdout.startswith("\nError: Consumer group 'missing' does not exist.\n")
    assert produced in result.stdout


def test_older_brokers_describe_one_group_per_request(
    run: Run, produced: str, idle_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = run("consumer-groups", "--describe", "--group", idle_group).stdout
    negotiate = Connection._negotiate

    async def as_before_3_0(connection: Connection) -> dict[int, tuple[int, int]]:
        versions = await negotiate(connection)
        del versions[ConsumerGroupDescribeRequest.api_key]
        older = {FindCoordinatorRequest: (0, 3), OffsetFetchRequest: (1, 7), DescribeGroupsRequest: (0, 5)}
        return versions | {request.api_key: offered for request, offered in older.items()}

    monkeypatch.setattr(Connection, "_negotiate", as_before_3_0)
    assert run("consumer-groups", "--describe", "--group", idle_group).stdout == output
    missing = run("consumer-groups", "--describe", "--group", "missing", fails=True)
    assert missing.stdout == "\nError: Consumer group 'missing' does not exist.\n"


def test_offsets_are_deleted_with_their_topic(
    run: Run, broker: Broker, produced: str, idle_group: str
) -> None:
    run("topics", "--create", "--topic", f"{produced}-too", "--partitions", "1")
    commit(broker.bootstrap, idle_group, {(f"{produced}-too", 0): 0})
    run("topics", "--delete", "--topic", produced)
    output = rows(run("consumer-groups", "--describe", "--group", idle_group).stdout)
    assert [row[1:4] for row in output] == [[f"{produced}-too", "0", "0"]]
    run("topics", "--delete", "--topic", f"{produced}-too")
    gone = run("consumer-groups", "--describe", "--group", idle_group, fails=True)
    assert gone.stdout == f"\nError: Consumer group '{idle_group}' does not exist.\n"


def test_offsets_are_reset_to_either_end(run: Run, produced: str, idle_group: str) -> None:
    scope = ("--topic", produced, *JUST_SHOW)
    beginning, end = ends(run, produced) | {0: 0, 1: 0}, ends(run, produced)
    assert new_offsets(run, idle_group, "--to-earliest", *scope) == at(produced, beginning)
    assert new_offsets(run, idle_group, "--to-latest", *scope) == at(produced, end)
    assert committed(run, idle_group) == at(produced, {0: 1, 1: 1})


def at(topic: str, offsets: dict[int, int]) -> dict[tuple[str, int], int]:
    return {(topic, index): offset for index, offset in offsets.items()}


def test_only_execute_changes_anything(run: Run, produced: str, idle_group: str) -> None:
    arguments = (
        "consumer-groups",
        "--reset-offsets",
        "--group",
        idle_group,
        "--topic",
        f"{produced}:1",
        "--to-earliest",
    )
    result = run(*arguments)
    assert "WARN: No action will be performed as the --execute option is missing." in result.stderr
    assert committed(run, idle_group) == at(produced, {0: 1, 1: 1})
    assert run(*arguments, "--execute").stdout == result.stdout
    assert committed(run, idle_group) == at(produced, {0: 1, 1: 0})


def test_a_new_group_can_be_given_offsets(run: Run, produced: str, group: str) -> None:
    new_offsets(run, group, "--to-latest", "--topic", produced, "--execute")
    assert committed(run, group) == at(produced, ends(run, produced))


def test_offsets_outside_the_log_are_replaced_by_the_nearest(
    run: Run, produced: str, idle_group: str
) -> None:
    arguments = (
        "consumer-groups",
        "--reset-offsets",
        "--group",
        idle_group,
        "--topic",
        f"{produced}:0",
        *JUST_SHOW,
    )
    high = run(*arguments, "--to-offset", 999)
    end = ends(run, produced)[0]
    assert rows(high.stdout) == [[idle_group, produced, "0", str(end)]]
    assert f"is higher than latest offset for topic partition {produced}-0." in high.stderr
    low = run(*arguments, "--shift-by", -5)
    assert rows(low.stdout) == [[idle_group, produced, "0", "0"]]
    assert f"New offset (-4) is lower than earliest offset for topic partition {produced}-0." in low.stderr


def test_offsets_are_shifted_from_the_committed_ones(run: Run, produced: str, idle_group: str) -> None:
    scope = ("--all-topics", *JUST_SHOW)
    assert new_offsets(run, idle_group, "--shift-by", -1, *scope) == at(produced, {0: 0, 1: 0})
    assert new_offsets(run, idle_group, "--to-offset", 0, *scope) == at(produced, {0: 0, 1: 0})


def test_partitions_without_an_offset_cannot_be_shifted(run: Run, produced: str, group: str) -> None:
    arguments = ("--reset-offsets", "--group", group, "--topic", f"{produced}:0", "--shift-by", 1, *JUST_SHOW)
    failed = run("consumer-groups", *arguments, fails=True)
    assert f"Cannot shift offset for partition {produced}-0" in failed.stderr


def test_offsets_are_reset_by_time(run: Run, produced: str, idle_group: str) -> None:
    scope = ("--topic", produced, *JUST_SHOW)
    end = at(produced, ends(run, produced))
    beginning = at(produced, {0: 0, 1: 0})
    assert new_offsets(run, idle_group, "--to-datetime", "2020-01-01T00:00:00.000", *scope) == beginning
    assert new_offsets(run, idle_group, "--to-datetime", "2020-01-01T00:00:00+05:00", *scope) == beginning
    assert new_offsets(run, idle_group, "--to-datetime", "2999-01-01T00:00:00Z", *scope) == end
    assert new_offsets(run, idle_group, "--by-duration", "P1DT2H", *scope) == beginning
    late = run("consumer-groups", "--reset-offsets", "--group", idle_group, "--by-duration", "PT0S", *scope)
    assert f"Warn: Partition 0 from topic {produced} is empty." in late.stdout


def test_what_is_exported_can_be_read_back(run: Run, produced: str, idle_group: str, tmp_path: Path) -> None:
    arguments = ("consumer-groups", "--reset-offsets", "--group", idle_group)
    exported = run(*arguments, "--to-current", "--all-topics", "--export", *JUST_SHOW).stdout
    assert exported == f"{produced},0,1\n{produced},1,1\n\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported)
    new_offsets(run, idle_group, "--to-earliest", "--topic", produced, "--execute")
    new_offsets(run, idle_group, "--from-file", plan, "--execute")
    assert committed(run, idle_group) == at(produced, {0: 1, 1: 1})


def test_a_plan_file_can_have_several_groups(
    run: Run, broker: Broker, produced: str, idle_group: str, tmp_path: Path
) -> None:
    groups = ("--group", idle_group, "--group", f"{idle_group}-2")
    arguments = ("consumer-groups", "--reset-offsets", *groups, *JUST_SHOW)
    exported = run(*arguments, "--to-offset", 1, "--topic", f"{produced}:0", "--export").stdout
    assert exported == f"{idle_group},{produced},0,1\n{idle_group}-2,{produced},0,1\n\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported)
    assert len(rows(run(*arguments, "--from-file", plan).stdout)) == 2
    missing = run(*arguments, "--group", "unplanned", "--from-file", plan, fails=True)
    assert "Error: No reset plan for group unplanned found" in missing.stdout


def test_a_group_with_members_is_not_reset(run: Run, broker: Broker, produced: str, group: str) -> None:
    with members(broker.bootstrap, group, [produced], partitions=2):
        arguments = (
            "consumer-groups",
            "--reset-offsets",
            "--group",
            group,
            "--to-earliest",
            "--topic",
            produced,
        )
        failed = run(*arguments, "--execute", fails=True)
    message = f"'{group}' is inactive, but the current state is Stable."
    assert f"Error: Assignments can only be reset if the group {message}" in failed.stdout


def test_offsets_are_deleted(run: Run, produced: str, idle_group: str) -> None:
    arguments = ("consumer-groups", "--delete-offsets", "--group", idle_group)
    result = run(*arguments, "--topic", f"{produced}:0")
    assert result.stdout.startswith(
        f"Request succeeded for deleting offsets from group {idle_group}.\n\nTOPIC "
    )
    assert rows(result.stdout.partition("\n\n")[2]) == [[produced, "0", "Successful"]]
    assert committed(run, idle_group) == at(produced, {1: 1})
    failed = run(*arguments, "--topic", produced, "--topic", "nowhere", fails=True)
    status = {tuple(row[:2]): row[2] for row in rows(failed.stdout.partition("\n\n")[2])}
    assert status == {
        ("nowhere", "-"): "Error:",
        (produced, "0"): "Successful",
        (produced, "1"): "Successful",
    }


def test_offsets_of_a_subscribed_topic_are_not_deleted(
    run: Run, broker: Broker, produced: str, group: str
) -> None:
    with members(broker.bootstrap, group, [produced], partitions=2):
        arguments = ("consumer-groups", "--delete-offsets", "--group", group, "--topic", produced)
        failed = run(*arguments, fails=True)
    assert "Error: Encountered some partition-level error, see the follow-up details." in failed.stdout
    assert "missing" not in run("consumer-groups", "--list").stdout
    unknown = ("consumer-groups", "--delete-offsets", "--group", "missing", "--topic", produced)
    assert "\nError: " in run(*unknown, fails=True).stdout


def test_groups_are_deleted(run: Run, broker: Broker, produced: str, idle_group: str) -> None:
    commit(broker.bootstrap, f"{idle_group}-2", {(produced, 0): 0})
    with members(broker.bootstrap, f"{idle_group}-3", [produced], partitions=2):
        arguments = ("consumer-groups", "--delete", "--group", idle_group, "--group", f"{idle_group}-3")
        failed = run(*arguments, fails=True)
        assert "Error: Deletion of some consumer groups failed:" in failed.stdout
        assert f"* Group '{idle_group}-3' could not be deleted due to: NON_EMPTY_GROUP" in failed.stdout
        assert f"These consumer groups were deleted successfully: '{idle_group}'" in failed.stdout
    deleted = run("consumer-groups", "--delete", "--group", f"{idle_group}-2")
    assert deleted.stdout == f"Deletion of requested consumer groups ('{idle_group}-2') was successful.\n"
    assert idle_group not in run("consumer-groups", "--list").stdout.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give exactly one of --list, --describe, --delete"),
        ("--list --describe", "give exactly one of"),
        ("--list --group g", "--group cannot be used with --list"),
        ("--list --state odd", "Invalid state list 'odd'. Valid states are: PreparingRebalance"),
        ("--list --type odd", "Invalid types list 'odd'. Valid types are: Classic, Consumer"),
        ("--describe", "--describe needs either --group NAME or --all-groups"),
        ("--describe --group g --all-groups", "needs either --group NAME or --all-groups"),
        ("--describe --group g --members --state", "at most one of --members, --offsets and --state"),
        ("--describe --group g --state stable", "--describe does not take a value for --state"),
        ("--describe --group g --type", "--type cannot be used with --describe"),
        ("--delete --group g --topic t", "--topic cannot be used with --delete"),
        ("--delete-offsets --group g", "--delete-offsets needs one --group NAME, and --topic NAME"),
        ("--reset-offsets --to-earliest --topic t", "--reset-offsets needs either --group NAME"),
        ("--reset-offsets --group g --topic t", "--reset-offsets needs exactly one of --to-earliest"),
        ("--reset-offsets --group g --topic t --to-earliest --to-offset 0", "needs exactly one of"),
        ("--reset-offsets --group g --to-earliest", "One of the reset scopes should be defined"),
        ("--reset-offsets --group g --to-earliest --topic t --all-topics", "give either --topic or"),
        ("--reset-offsets --group g --to-latest --topic t --dry-run --execute", "only one of --dry-run"),
        ("--reset-offsets --group g --to-latest --topic nowhere", "topic nowhere does not exist"),
        ("--reset-offsets --group g --to-latest --topic nowhere:1", '"nowhere-1" do not exist'),
        ("--reset-offsets --group g --to-latest --topic t:x", "Invalid partition 'x' specified in topic arg"),
        ("--reset-offsets --group g --to-latest --topic t:1:2", "Invalid topic arg 't:1:2'"),
        ("--reset-offsets --group g --topic t --to-datetime 2020-01-01", "--to-datetime 2020-01-01: write"),
        ("--reset-offsets --group g --topic t --to-datetime 2020-13-01T00:00", "write YYYY-MM-DD"),
        ("--reset-offsets --group g --topic t --by-duration P", "--by-duration P: write PnDTnHnMnS"),
        ("--reset-offsets --group g --topic t --by-duration 1D", "--by-duration 1D: write"),
        ("--reset-offsets --group g --from-file /nowhere.csv", "Unable to read file /nowhere.csv"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: str, message: str) -> None:
    assert message in run("consumer-groups", *arguments.split(), fails=True).stderr


def test_an_invalid_plan_file_is_rejected(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(json.dumps({"topic": "t"}))
    arguments = ("consumer-groups", "--reset-offsets", "--group", "g", "--from-file", plan, *JUST_SHOW)
    assert "plan.csv, line 1: write topic,partition,offset" in run(*arguments, fails=True).stderr


def test_old_options_are_accepted_with_a_note(run: Run) -> None:
    result = run("consumer-groups", "--new-consumer", "--zookeeper", "localhost:2181", "--list")
    assert "--new-consumer is not needed" in result.stderr
    assert "--zookeeper is not needed" in result.stderr


def test_regular_expressions_are_checked_without_a_broker(run_alone: Run) -> None:
    valid = run_alone("consumer-groups", "--validate-regex", "orders-.*")
    assert valid.stdout == "The regular expression `orders-.*` is valid.\n"
    invalid = run_alone("consumer-groups", "--validate-regex", "a(b")
    assert invalid.stdout.startswith("The regular expression `a(b` is invalid: ")
