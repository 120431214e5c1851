"""Transactions through librdkafka, one after the other."""

from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from benchmarks.target import Target

WARM_UP = 20
RECORD_BYTES = 100
TIMEOUT_SECONDS = 30.0


def throughput(
    target: Target, *, topic: str, transactions: int, records: int, producers: int
) -> dict[str, float]:
    """Commit `transactions` transactions of `records` records each, by several producers in parallel."""
    each = transactions // producers
    started = [_start(target, f"benchmark-{number}") for number in range(producers)]
    with ThreadPoolExecutor(producers) as threads:
        # list() raises the failures of threads.
        list(threads.map(lambda producer: _commit(producer, topic, records, WARM_UP), started))
        with target.measured() as spent:
            list(threads.map(lambda producer: _commit(producer, topic, records, each), started))
    done = each * producers
    return {
        "transactions/s": done / spent.seconds,
        "broker CPU µs/transaction": spent.broker_cpu_seconds / done * 1e6,
    }


def _start(target: Target, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 3,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def _commit(producer: Producer, topic: str, records: int, transactions: int) -> None:
    value = b"x" * RECORD_BYTES
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value)
        producer.commit_transaction(TIMEOUT_SECONDS)
