"""Requests of tools and services to a cluster, over the Kafka protocol; Apache Kafka's clusters work too.

    async with Client("localhost:9092") as client:
        (await create_topics(client, [NewTopic("orders", partitions=3)])).all()

Each module is about one thing: `cluster`, `topics`, `configs`, `offsets`, `records`, `groups`,
`group_offsets`, `resets`, `transactions`, `producers`, `log_dirs`, `reassignments`. Functions take a
`millrace.client.Client` and return values of their own, never messages. If a request is about several things,
its result is `Outcomes`: the value or the KafkaError of each.
"""
