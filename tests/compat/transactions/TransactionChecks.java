import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Uses the Java client's transactions as an application would, and prints what it saw: one line per check with
 * its outcome ("value" or "error"), its name and the value, tab-separated. What is right is for the caller to say.
 */
public final class TransactionChecks {
    interface Check {
        Object run() throws Exception;
    }

    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final String bootstrap;
    private final Admin admin;

    private TransactionChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties(Map.of()));
    }

    public static void main(String[] arguments) {
        TransactionChecks checks = new TransactionChecks(arguments[0]);
        check("commit", checks::commit);
        check("abort", checks::abort);
        check("many transactions", checks::manyTransactions);
        check("epoch after three transactions", checks::epochs);
        check("a transaction without records", checks::withoutRecords);
        check("an abort without records", checks::abortWithoutRecords);
        check("several partitions", checks::severalPartitions);
        check("an open transaction holds back readers", checks::heldBack);
        check("fencing", checks::fencing);
        check("fencing through the admin client", checks::adminFencing);
        check("a timeout aborts", checks::timeout);
        check("too long a timeout", checks::tooLongATimeout);
        check("read, process, write", checks::readProcessWrite);
        check("an abort leaves the offsets", checks::abortedOffsets);
        check("list and describe", checks::listAndDescribe);
        check("producers of a partition", checks::producers);
        check("abort a hanging transaction", checks::hanging);
        checks.admin.close(Duration.ofSeconds(1));
        // Idle clients' threads must not keep the process alive.
        System.exit(0);
    }

    private static void check(String name, Check check) {
        try {
            print("value", name, check.run());
        } catch (ExecutionException wrapped) {
            print("error", name, wrapped.getCause().getClass().getSimpleName());
        } catch (Exception error) {
            print("error", name, error.getClass().getSimpleName());
        }
    }

    private static void print(String outcome, String name, Object value) {
        System.out.println(outcome + "\t" + name + "\t" + value);
    }

    // Ending

    private Object commit() throws Exception {
        String topic = createTopic("commit", 1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            send(producer, topic, "a", "b");
            producer.commitTransaction();
        }
        return committed(topic);
    }

    private Object abort() throws Exception {
        String topic = createTopic("abort", 1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (String value : List.of("a", "b", "c")) {
                producer.beginTransaction();
                send(producer, topic, value);
                if (value.equals("b")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        return committed(topic) + " of " + everything(topic);
    }

    private Object manyTransactions() throws Exception {
        String topic = createTopic("many", 3);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 100; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, number + "-" + partition));
                }
                // On a busy machine the client (4.3.1, with Apache Kafka too) may end a transaction before it
                // sends the records: a commit is then rejected, and aborted records join the next transaction.
                producer.flush();
                if (number % 4 == 3) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> expected = IntStream.range(0, 100)
                .filter(number -> number % 4 != 3)
                .boxed()
                .flatMap(number -> IntStream.range(0, 3).mapToObj(partition -> number + "-" + partition))
                .sorted()
                .collect(Collectors.toList());
        List<String> seen = committed(topic);
        seen.sort(null);
        return seen.equals(expected);
    }

    private Object epochs() throws Exception {
        String topic = createTopic("epochs", 1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                send(producer, topic, "" + number);
                producer.commitTransaction();
            }
        }
        return describe(topic).producerEpoch();
    }

    private Object withoutRecords() {
        try (KafkaProducer<String, String> producer = producer("without-records")) {
            producer.beginTransaction();
            producer.commitTransaction();
            return "committed";
        }
    }

    private Object abortWithoutRecords() throws Exception {
        String topic = createTopic("abort-without-records", 1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, "a");
            producer.commitTransaction();
        }
        return committed(topic);
    }

    private Object severalPartitions() throws Exception {
        String topic = createTopic("several", 10);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            for (int partition = 0; partition < 10; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, "" + partition));
            }
            producer.flush();
            producer.commitTransaction();
        }
        return committed(topic).size();
    }

    private Object heldBack() throws Exception {
        String topic = createTopic("held-back", 1);
        try (KafkaProducer<String, String> open = producer(topic + "-open");
                KafkaProducer<String, String> quick = producer(topic + "-quick")) {
            open.beginTransaction();
            send(open, topic, "open");
            quick.beginTransaction();
            send(quick, topic, "quick");
            quick.commitTransaction();
            List<String> before = committed(topic);
            open.commitTransaction();
            return before + " then " + committed(topic);
        }
    }

    // Fencing and timeouts

    private Object fencing() throws Exception {
        String topic = createTopic("fencing", 1);
        KafkaProducer<String, String> zombie = producer(topic);
        zombie.beginTransaction();
        send(zombie, topic, "orphan");
        try (KafkaProducer<String, String> heir = producer(topic)) {
            heir.beginTransaction();
            send(heir, topic, "heir");
            heir.commitTransaction();
        }
        try {
            zombie.commitTransaction();
            return "the zombie has committed";
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName() + " " + committed(topic);
        } finally {
            zombie.close(Duration.ZERO);
        }
    }

    private Object adminFencing() throws Exception {
        String topic = createTopic("admin-fencing", 1);
        KafkaProducer<String, String> zombie = producer(topic);
        zombie.beginTransaction();
        send(zombie, topic, "orphan");
        admin.fenceProducers(Set.of(topic)).all().get();
        try {
            zombie.commitTransaction();
            return "the zombie has committed";
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName() + " " + committed(topic);
        } finally {
            zombie.close(Duration.ZERO);
        }
    }

    private Object timeout() throws Exception {
        String topic = createTopic("timeout", 1);
        KafkaProducer<String, String> producer = producer(topic, Map.of("transaction.timeout.ms", "500"));
        producer.beginTransaction();
        send(producer, topic, "slow");
        while (!describe(topic).state().toString().equals("CompleteAbort")) {
            Thread.sleep(20);
        }
        try {
            producer.commitTransaction();
            return "committed";
        } catch (RuntimeException refused) {
            return "refused, " + committed(topic);
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private Object tooLongATimeout() {
        try (KafkaProducer<String, String> producer =
                producer("too-long", Map.of("transaction.timeout.ms", "1000000"))) {
            return "accepted";
        }
    }

    // Offsets

    private Object readProcessWrite() throws Exception {
        String source = createTopic("source", 1);
        String sink = createTopic("sink", 1);
        fill(source, 20);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", "processors"));
                KafkaProducer<String, String> producer = producer(sink)) {
            consumer.subscribe(List.of(source));
            int processed = 0;
            while (processed < 20) {
                for (ConsumerRecord<String, String> record : consumer.poll(PATIENCE)) {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(sink, record.value()));
                    producer.sendOffsetsToTransaction(after(record), consumer.groupMetadata());
                    producer.commitTransaction();
                    processed++;
                }
            }
        }
        return committed(sink).size() + " records, offset " + offset("processors", source);
    }

    private Object abortedOffsets() throws Exception {
        String source = createTopic("aborted-source", 1);
        fill(source, 2);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", "doubters"));
                KafkaProducer<String, String> producer = producer("doubter")) {
            consumer.subscribe(List.of(source));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            while (records.size() < 2) {
                consumer.poll(PATIENCE).forEach(records::add);
            }
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(after(records.get(0)), consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(after(records.get(1)), consumer.groupMetadata());
            producer.abortTransaction();
        }
        return offset("doubters", source);
    }

    private static Map<TopicPartition, OffsetAndMetadata> after(ConsumerRecord<String, String> record) {
        return Map.of(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
    }

    private long offset(String group, String topic) throws Exception {
        return admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata()
                .get()
                .get(new TopicPartition(topic, 0))
                .offset();
    }

    // Administration

    private Object listAndDescribe() throws Exception {
        String topic = createTopic("described", 2);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            send(producer, topic, "a");
            TransactionListing listing = admin.listTransactions().all().get().stream()
                    .filter(each -> each.transactionalId().equals(topic))
                    .findFirst()
                    .orElseThrow();
            TransactionDescription open = describe(topic);
            producer.commitTransaction();
            TransactionDescription ended = describe(topic);
            boolean same = listing.producerId() == open.producerId();
            return listing.state() + " " + same + " " + open.topicPartitions().size() + " partition, "
                    + open.transactionTimeoutMs() + " ms, then " + ended.state();
        }
    }

    private Object producers() throws Exception {
        String topic = createTopic("producers", 1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            send(producer, topic, "a");
            ProducerState open = state(topic);
            producer.commitTransaction();
            ProducerState ended = state(topic);
            return open.currentTransactionStartOffset() + " then " + ended.currentTransactionStartOffset();
        }
    }

    private Object hanging() throws Exception {
        String topic = createTopic("hanging", 1);
        KafkaProducer<String, String> producer = producer(topic);
        producer.beginTransaction();
        send(producer, topic, "a");
        ProducerState state = state(topic);
        AbortTransactionSpec spec = new AbortTransactionSpec(
                new TopicPartition(topic, 0),
                state.producerId(),
                (short) state.producerEpoch(),
                state.coordinatorEpoch().orElse(0));
        admin.abortTransaction(spec).all().get();
        producer.close(Duration.ZERO);
        return state(topic).currentTransactionStartOffset();
    }

    private ProducerState state(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.describeProducers(List.of(partition))
                .partitionResult(partition)
                .get()
                .activeProducers()
                .get(0);
    }

    private TransactionDescription describe(String transactionalId) throws Exception {
        return admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
    }

    // Clients

    private String createTopic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        return producer(transactionalId, Map.of());
    }

    private KafkaProducer<String, String> producer(String transactionalId, Map<String, String> settings) {
        Properties properties = properties(settings);
        properties.put("transactional.id", transactionalId);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String... values)
            throws Exception {
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
    }

    private void fill(String topic, int records) throws Exception {
        try (KafkaProducer<String, String> producer = producer("fill-" + topic)) {
            producer.beginTransaction();
            for (int number = 0; number < records; number++) {
                send(producer, topic, "record " + number);
            }
            producer.commitTransaction();
        }
    }

    private KafkaConsumer<String, String> consumer(Map<String, String> settings) {
        Properties properties = properties(settings);
        properties.putIfAbsent("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(properties);
    }

    private List<String> committed(String topic) {
        return read(topic, "read_committed");
    }

    private List<String> everything(String topic) {
        return read(topic, "read_uncommitted");
    }

    private List<String> read(String topic, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", isolation))) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition()))
                    .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<String> values = new ArrayList<>();
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
            return values;
        }
    }

    private Properties properties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("default.api.timeout.ms", "20000");
        properties.put("request.timeout.ms", "20000");
        properties.putAll(settings);
        return properties;
    }
}
