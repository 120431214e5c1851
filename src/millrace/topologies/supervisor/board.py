"""The board: jobs and statuses of all topologies, read from the log, and the changes that commands make."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.control import Unsigned
from millrace.topologies.supervisor.records import (
    CODE,
    CONFIGS,
    JOBS,
    STATUSES,
    Job,
    Status,
    decode_job,
    decode_status,
    encode,
)

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
READ_RECORDS = 1000
# librdkafka writes to standard error about every attempt to connect; our own log says that the log is away.
QUIET = {"log_level": "2"}


class LogUnavailable(TopologyError):
    """The log cannot be reached now; another try may help."""


class Board:
    """Follows the topics of the supervisor. One thread may use it."""

    def __init__(self, bootstrap: str, key: bytes, client: Mapping[str, str] | None = None) -> None:
        self._config: dict[str, Any] = {**QUIET, **(client or {}), "bootstrap.servers": bootstrap}
        self._bootstrap = bootstrap
        self._key = key
        self.jobs: dict[str, Job] = {}
        self.statuses: dict[str, Status] = {}
        self.ignored: list[str] = []
        """Records that no one with the key has written, the newest last."""
        self._behind = {JOBS, STATUSES}
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    # Reading

    def catch_up(self) -> None:
        """Read everything that is there; raises LogUnavailable if the log cannot be read."""
        create_topics(self._config)
        self._open()
        while self._behind:
            if not self.refresh(TIMEOUT_SECONDS) and self._behind:
                raise LogUnavailable(f"the log at {self._bootstrap} does not answer; is it running?")

    def refresh(self, seconds: float = 0.0) -> bool:
        """Take up what is new, waiting for the first record; returns whether the log had something to say."""
        consumer = self._open()
        first = consumer.poll(seconds)
        if first is None:
            return False
        for message in (first, *consumer.consume(READ_RECORDS, 0)):
            self._note(message)
        return True

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **self._config,
                    "group.id": "topology-board",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": 4096,
                    "fetch.wait.max.ms": 100,
                }
            )
            self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in (JOBS, STATUSES)])
        return self._consumer

    def _note(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(message.topic())
            elif error.fatal():
                raise KafkaException(error)
            return
        name = (message.key() or b"").decode(errors="replace")
        try:
            if message.topic() == JOBS:
                _put(self.jobs, name, message.value(), lambda content: decode_job(self._key, content))
            else:
                _put(self.statuses, name, message.value(), lambda content: decode_status(self._key, content))
        except (Unsigned, msgspec.MsgspecError) as reason:
            text = f"{message.topic()}@{message.offset()} ({name}): {reason}"
            self.ignored.append(text)
            logger.warning("ignored %s", text)

    def status(self, job: Job) -> Status | None:
        """The status of this job, not of an earlier one with the same name."""
        found = self.statuses.get(job.name)
        return found if found is not None and found.id == job.id else None

    def job(self, name: str) -> Job:
        """The job of this name, or of this id; raises TopologyError with those that exist."""
        for job in self.jobs.values():
            if name in (job.name, job.id):
                return job
        known = ", ".join(sorted(self.jobs)) or "none"
        raise TopologyError(f"there is no topology {name}; there are: {known}")

    # Writing

    def put_job(self, job: Job) -> None:
        self.write(JOBS, job.name, encode(self._key, job))
        self.jobs[job.name] = job

    def put_status(self, name: str, status: Status) -> None:
        self.write(STATUSES, name, encode(self._key, status))
        self.statuses[name] = status

    def remove(self, job: Job) -> None:
        """Forget a topology that was killed. Its offsets and states stay."""
        self.write(STATUSES, job.name, None)
        self.write(JOBS, job.name, None)
        self.jobs.pop(job.name, None)
        self.statuses.pop(job.name, None)
        self.remove_code(job)

    def remove_code(self, job: Job) -> None:
        """Delete the code of a job that is gone or has other code now, unless another job has the same."""
        if not any(other.digest == job.digest for other in self.jobs.values()):
            for number in range(job.chunks):
                self.write(CODE, f"{job.digest}/{number}", None)

    def write(self, topic: str, key: str, value: bytes | None) -> None:
        """Write a record; returns when the log has it."""
        if self._producer is None:
            self._producer = Producer({**self._config, "linger.ms": 0, "message.timeout.ms": 30_000})
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failures.append(error)

        self._producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
        if self._producer.flush(TIMEOUT_SECONDS) or failures:
            reason = failures[0].str() if failures else "no response"
            raise LogUnavailable(f"the log at {self._bootstrap} does not accept {topic}: {reason}")

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _put(records: dict[str, Any], name: str, content: bytes | None, decode: Any) -> None:
    if content is None:
        records.pop(name, None)
    else:
        records[name] = decode(content)


def create_topics(config: Mapping[str, Any]) -> None:
    """Create the supervisor's topics unless they exist."""
    admin = AdminClient({**QUIET, **config})
    try:
        known = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise LogUnavailable(
            f"the log at {config['bootstrap.servers']} does not answer: {error.args[0].str()}; is it running?"
        ) from error
    missing = [
        NewTopic(topic, 1, config=settings) for topic, settings in CONFIGS.items() if topic not in known
    ]
    for topic, change in (admin.create_topics(missing) if missing else {}).items():
        try:
            change.result(TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopologyError(f"the topic {topic} cannot be created: {error.args[0].str()}") from error
