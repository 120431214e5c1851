"""Apache Kafka's other broker options: known, so that its files are accepted, but without effect here."""

import logging
import re
from dataclasses import replace
from functools import cache

from .broker import BROKER_OPTIONS
from .options import Kind, Option, Scope
from .topic import TOPIC_OPTIONS

logger = logging.getLogger(__name__)

_DOC = "Known from Apache Kafka; accepted, without effect here."
_SCOPES = {"": Scope.READ_ONLY, "dynamic": Scope.CLUSTER_WIDE, "per-broker": Scope.PER_BROKER}
_LISTENER_OVERRIDE = re.compile(
    r"listener\.name\.[^.]+\.(?:[^.]+\.)??(?P<name>(?:sasl|ssl|max|num|connections|principal)\..+)"
)

# Options of older Kafka versions that nothing replaces.
_RETIRED_PREFIXES = ("zookeeper.", "password.encoder.")
_RETIRED = frozenset(
    (
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "inter.broker.protocol.version",
        "log.cleanup.interval.mins",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    )
)

# name, kind, default (- is none), and whether it can be changed at run time
_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int 100
add.partitions.to.txn.retry.backoff.ms int 20
alter.config.policy.class.name class -
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
background.threads int 10 dynamic
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
client.quota.callback.class class -
config.providers list "" dynamic
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ""
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.max.bytes int 1048576
controller.quorum.fetch.snapshot.max.bytes int 1048576
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.quorum.voters list ""
controller.quota.window.num int 11
controller.quota.window.size.seconds int 1
controller.socket.timeout.ms int 30000
cordoned.log.dirs list "" per-broker
create.topic.policy.class.name class -
delegation.token.expiry.check.interval.ms long 3600000
delegation.token.expiry.time.ms long 86400000
delegation.token.max.lifetime.ms long 604800000
delegation.token.secret.key password -
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list -
fetch.purgatory.purge.interval.requests int 1000
follower.fetch.last.tiered.offset.enable boolean false dynamic
group.coordinator.append.linger.ms int -1
group.coordinator.background.threads int 2
group.coordinator.cached.buffer.max.bytes int 1048588 dynamic
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
group.share.assignment.interval.ms int 1000 dynamic
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
group.streams.assignment.interval.ms int 1000 dynamic
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.num.standby.replicas int 0
group.streams.session.timeout.ms int 45000
initial.broker.registration.timeout.ms int 60000
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
log.cleaner.io.buffer.size int 524288 dynamic
log.dir.failure.timeout.ms long 30000
log.flush.start.offset.checkpoint.interval.ms int 60000
max.connection.creation.rate int 2147483647 dynamic
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter dynamic
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.io.threads int 8 dynamic
num.network.threads int 3 dynamic
num.recovery.threads.per.data.dir int 2 dynamic
num.replica.alter.log.dirs.threads int -
num.replica.fetchers int 1 dynamic
offsets.commit.timeout.ms int 5000
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
principal.builder.class class - per-broker
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500
quota.window.size.seconds int 1
remote.fetch.max.wait.ms int 500 dynamic
remote.list.offsets.request.timeout.ms long 30000 dynamic
remote.log.index.file.cache.total.size.bytes long 1073741824 dynamic
remote.log.manager.copier.thread.pool.size int 10 dynamic
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 dynamic
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int 10 dynamic
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 dynamic
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.follower.thread.pool.size int 2 dynamic
remote.log.manager.task.interval.ms long 30000
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string -
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10 dynamic
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config.
remote.log.storage.system.enable boolean false
replica.fetch.backoff.ms int 1000
replica.high.watermark.checkpoint.interval.ms long 5000
replica.selector.class string -
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
request.timeout.ms int 30000
sasl.client.callback.handler.class class -
sasl.kerberos.kinit.cmd string /usr/bin/kinit per-broker
sasl.kerberos.min.time.before.relogin long 60000 per-broker
sasl.kerberos.principal.to.local.rules list DEFAULT per-broker
sasl.kerberos.service.name string - per-broker
sasl.kerberos.ticket.renew.jitter double 0.05 per-broker
sasl.kerberos.ticket.renew.window.factor double 0.8 per-broker
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds short 300 per-broker
sasl.login.refresh.min.period.seconds short 60 per-broker
sasl.login.refresh.window.factor double 0.8 per-broker
sasl.login.refresh.window.jitter double 0.05 per-broker
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.client.credentials.client.id string -
sasl.oauthbearer.client.credentials.client.secret password -
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string -
sasl.oauthbearer.scope.claim.name string scope
sasl.oauthbearer.token.endpoint.url string -
sasl.server.callback.handler.class class -
security.inter.broker.protocol string PLAINTEXT
security.providers string -
share.coordinator.append.linger.ms int -1
share.coordinator.cached.buffer.max.bytes int 1048588 dynamic
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 3
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.listen.backlog.size int 50
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.engine.factory.class class - per-broker
ssl.keymanager.algorithm string SunX509 per-broker
ssl.protocol string TLSv1.3 per-broker
ssl.provider string - per-broker
ssl.secure.random.implementation string - per-broker
ssl.trustmanager.algorithm string PKIX per-broker
telemetry.max.bytes int 1048576
transaction.state.log.load.buffer.size int 5242880
transaction.state.log.min.isr int 2
transaction.two.phase.commit.enable boolean false
"""


@cache
def inert_options() -> dict[str, Option]:
    """Every broker option of Apache Kafka that has no effect here, by name."""
    options = {}
    for line in _TABLE.strip().splitlines():
        name, kind_name, default, *scope = line.split()
        kind = Kind[kind_name.upper()]
        untyped = Option(name, kind, None, _DOC, scope=_SCOPES[scope[0] if scope else ""])
        value = None if default == "-" else untyped.parse("" if default == '""' else default)
        options[name] = Option(name, kind, value, _DOC, scope=untyped.scope)
    return options


def find_broker_option(name: str) -> Option | None:
    """Look up a broker option, with or without effect here."""
    option = BROKER_OPTIONS.get(name) or inert_options().get(name)
    if option is None and (override := _LISTENER_OVERRIDE.fullmatch(name)):
        base = BROKER_OPTIONS.get(override["name"]) or inert_options().get(override["name"])
        return base and replace(base, name=name, default=None)
    return option


def report_unknown(name: str) -> None:
    """Report a property that is not an option."""
    if name in _RETIRED or name.startswith(_RETIRED_PREFIXES):
        logger.info("%s is an option of older Kafka versions and is not needed", name)
    elif option := TOPIC_OPTIONS.get(name):
        logger.warning("%s is a topic's option and is ignored; did you mean %s?", name, option.synonyms[0])
    else:
        nearest = nearest_broker_option(name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        logger.warning("unknown option %s is ignored%s", name, hint)


def nearest_broker_option(name: str) -> str | None:
    """The option with the most similar name, if any is similar enough."""
    from difflib import get_close_matches

    matches = get_close_matches(name, [*BROKER_OPTIONS, *inert_options()], n=1)
    return matches[0] if matches else None
