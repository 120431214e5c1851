import pytest

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java


@pytest.fixture(scope="session", autouse=True)
def java_and_jars() -> None:
    """Skip, with a reason, without a JDK or without a network to fetch the jars the first time."""
    try:
        apache_kafka_classpath()
        compiler = java().resolve().with_name("javac")
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    if not compiler.exists():
        pytest.skip(f"{java()} has no compiler; install a JDK, not a JRE")
