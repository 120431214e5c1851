"""A transactional producer that leaves its transaction open until a test ends it."""

from confluent_kafka import Producer


class TransactionWriter:
    """A producer with its own transactional id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        self.producer.init_transactions()

    def write(self, topic: str, partition: int) -> None:
        """Begin a transaction and write one record."""
        self.producer.begin_transaction()
        self.producer.produce(topic, b"content", partition=partition)
        self.producer.flush()
