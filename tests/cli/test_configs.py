from pathlib import Path

import pytest

from .conftest import Run


def test_a_topics_settings_are_changed_shown_and_removed(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    added = "retention.ms=5000,cleanup.policy=[compact,delete]"
    changed = run(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added
    )
    synonyms = "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete"
    assert changed.stdout == f"Completed updating config for topic {topic}.\n"
    assert run("configs", "--describe", "--topic", topic).stdout.splitlines() == [
        f"Dynamic configs for topic {topic} are:",
        f"  cleanup.policy=compact,delete sensitive=false synonyms={{{synonyms}}}",
        "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000}",
    ]
    run("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy")
    assert (
        run("configs", "--describe", "--topic", topic).stdout == f"Dynamic configs for topic {topic} are:\n"
    )


def test_all_settings_of_a_topic_are_shown_in_order(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    heading, *lines = run("configs", "--describe", "--topic", topic, "--all").stdout.splitlines()
    assert heading == f"All configs for topic {topic} are:"
    assert lines == sorted(lines)
    assert any(line.startswith("  segment.bytes=1073741824 sensitive=false ") for line in lines)


def test_settings_are_read_from_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", topic)
    file = tmp_path / "added.properties"
    file.write_text("retention.ms=7000\n")
    run("configs", "--alter", "--topic", topic, "--add-config-file", file)
    assert "  retention.ms=7000 " in run("configs", "--describe", "--topic", topic).stdout


def test_a_brokers_settings_and_the_defaults_of_all(run: Run) -> None:
    run("configs", "--alter", "--broker-defaults", "--add-config", "log.cleaner.backoff.ms=9000")
    run("configs", "--alter", "--broker", 1, "--add-config", "log.cleaner.backoff.ms=8000")
    defaults = run("configs", "--describe", "--entity-type", "brokers", "--entity-default").stdout
    assert defaults.startswith(
        "Default configs for brokers in the cluster are:\n  log.cleaner.backoff.ms=9000 "
    )
    both = run("configs", "--describe", "--entity-type", "brokers").stdout
    assert (
        "Dynamic configs for broker 1 are:\n  log.cleaner.backoff.ms=8000 sensitive=false synonyms={" in both
    )
    assert "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=8000, DYNAMIC_DEFAULT_BROKER_CONFIG:" in both
    for entity in (("--broker", 1), ("--broker-defaults",)):
        run("configs", "--alter", *entity, "--delete-config", "log.cleaner.backoff.ms")
    assert run("configs", "--describe", "--broker", 1).stdout == "Dynamic configs for broker 1 are:\n"


@pytest.mark.parametrize(("kind", "name"), [("topic", "missing"), ("broker", "7")])
def test_an_unknown_resource_has_no_settings(run: Run, kind: str, name: str) -> None:
    output = run("configs", "--describe", f"--{kind}", name).stdout
    assert output == f"The {kind} '{name}' doesn't exist and doesn't have dynamic config.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--describe",), "name the resource"),
        ((), "give exactly one of --describe and --alter"),
        (("--describe", "--entity-type", "client-metrics"), "settings of client-metrics are not supported"),
        (("--alter", "--entity-type", "users", "--add-config", "a=1"), "--alter needs --entity-name"),
        (("--alter", "--user", "u", "--add-config", "nonsense=1"), "Invalid configuration key nonsense"),
        (("--alter", "--user", "u", "--add-config", "producer_byte_rate=x"), "a quota is a number"),
        (("--alter", "--client", "c", "--add-config", "SCRAM-SHA-256=[password=x]"), "belong to one user"),
        (
            ("--alter", "--user", "u", "--add-config", "SCRAM-SHA-256=[iterations=5000]"),
            "password is missing",
        ),
        (("--describe", "--entity-type", "foo"), "Invalid entity type foo"),
        (("--describe", "--broker", "one"), "'one' is not a broker id"),
        (("--alter", "--topic", "t"), "--alter needs --add-config"),
        (("--alter", "--entity-type", "topics", "--add-config", "a=b"), "--alter needs --entity-name"),
        (("--alter", "--topic", "t", "--add-config", "a"), "write key=value"),
        (("--alter", "--topic", "missing", "--add-config", "retention.ms=5"), "missing"),
        (("--describe", "--entity-type", "topics", "--entity-default"), "topics have no defaults"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[object, ...], message: str) -> None:
    assert message in run("configs", *arguments, fails=True).stderr


def test_an_invalid_value_is_rejected_with_the_brokers_message(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    result = run("configs", "--alter", "--topic", topic, "--add-config", "segment.bytes=many", fails=True)
    assert "segment.bytes" in result.stderr


def test_a_groups_settings_are_changed_shown_and_removed(run: Run) -> None:
    group = ("--entity-type", "groups", "--entity-name", "readers")
    changed = run("configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert changed.stdout == "Completed updating config for group readers.\n"
    synonyms = (
        "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
    )
    assert run("configs", "--describe", "--group", "readers").stdout.splitlines() == [
        "Dynamic configs for group readers are:",
        f"  consumer.session.timeout.ms=50000 sensitive=false synonyms={{{synonyms}}}",
    ]
    assert "Dynamic configs for group readers are:" in run("configs", "--describe", *group[:2]).stdout
    run("configs", "--alter", "--group", "readers", "--delete-config", "consumer.session.timeout.ms")
    missing = run("configs", "--describe", "--group", "readers").stdout
    assert missing == "The group 'readers' doesn't exist and doesn't have dynamic config.\n"


def test_a_groups_setting_beyond_the_brokers_limit_is_refused(run: Run) -> None:
    added = ("--add-config", "consumer.session.timeout.ms=1")
    refused = run("configs", "--alter", "--group", "readers", *added, fails=True)
    assert "group.consumer.min.session.timeout.ms" in refused.stderr


def test_credentials_of_users(run: Run) -> None:
    user = ("--entity-type", "users", "--entity-name", "ada")
    secret = "SCRAM-SHA-256=[iterations=8192,password=se,cret],SCRAM-SHA-512=[password=other]"
    altered = run("configs", "--alter", *user, "--add-config", secret)
    assert altered.stdout == "Completed updating config for user ada.\n"
    described = run("configs", "--describe", *user).stdout
    assert described == (
        "SCRAM credential configs for user-principal 'ada' are"
        " SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    run("configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    assert "512" not in run("configs", "--describe", "--entity-type", "users").stdout


def test_quotas_of_users_and_clients(run: Run) -> None:
    def set_quota(*entity: str, quota: str) -> None:
        run("configs", "--alter", *entity, "--add-config", quota)

    set_quota("--user", "bob", quota="producer_byte_rate=1024,consumer_byte_rate=2048")
    set_quota("--client-defaults", quota="request_percentage=50")
    set_quota(
        *("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients"),
        *("--entity-name", "app"),
        quota="producer_byte_rate=10",
    )
    assert run("configs", "--describe", "--user", "bob").stdout == (
        "Quota configs for user-principal 'bob' are producer_byte_rate=1024.0, consumer_byte_rate=2048.0\n"
    )
    assert run("configs", "--describe", "--client-defaults").stdout == (
        "Quota configs for the default client-id are request_percentage=50.0\n"
    )
    assert run("configs", "--describe", "--entity-type", "users", "--entity-type", "clients").stdout == (
        "Quota configs for user-principal 'bob', client-id 'app' are producer_byte_rate=10.0\n"
    )
    run("configs", "--alter", "--user", "bob", "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert not run("configs", "--describe", "--user", "bob").stdout
    for entity in (("--client-defaults",), ("--user", "bob", "--client", "app")):
        run("configs", "--alter", *entity, "--delete-config", "request_percentage,producer_byte_rate")
