import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;

/**
 * Uses the Java client as an application would, and prints what it saw: one line per check with its outcome
 * ("value" or "error"), its name and the value, tab-separated. What is right is for the caller to say.
 */
public final class ClientChecks {
    interface Check {
        Object run() throws Exception;
    }

    private static final Duration PATIENCE = Duration.ofSeconds(10);
    // In the past, but recent enough for every retention.
    private static final long FIRST_TIMESTAMP = System.currentTimeMillis() - 600_000;

    private final String bootstrap;
    private final Admin admin;

    private ClientChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties(Map.of()));
    }

    public static void main(String[] arguments) {
        ClientChecks checks = new ClientChecks(arguments[0]);
        checks.topics();
        checks.producer();
        checks.consumer();
        checks.offsets();
        checks.configs();
        checks.records();
        checks.cluster();
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

    private void topics() {
        check("create a topic", () -> {
            NewTopic topic = new NewTopic("created", 3, (short) 1).configs(Map.of("retention.ms", "3600000"));
            return admin.createTopics(List.of(topic)).numPartitions("created").get();
        });
        check("create it again", () -> create("created", 3));
        check("create a topic with a bad name", () -> create("no spaces", 1));
        check("create a topic with too many replicas", () ->
                admin.createTopics(List.of(new NewTopic("replicated", 1, (short) 3))).all().get());
        check("create a topic with a bad config", () ->
                admin.createTopics(List.of(new NewTopic("bad", 1, (short) 1).configs(Map.of("retention.ms", "soon"))))
                        .all().get());
        check("create a topic with the broker's defaults", () ->
                admin.createTopics(List.of(new NewTopic("defaults", Optional.empty(), Optional.empty())))
                        .numPartitions("defaults").get());
        check("only validate a topic", () -> {
            admin.createTopics(List.of(new NewTopic("validated", 1, (short) 1)),
                    new CreateTopicsOptions().validateOnly(true)).all().get();
            return topicNames().contains("validated");
        });
        check("list topics", () -> topicNames().contains("created"));
        check("describe a topic", () -> {
            TopicDescription described = describe("created");
            return described.partitions().size() + " partitions, leader " + described.partitions().get(0).leader().id()
                    + ", " + described.partitions().get(0).isr().size() + " in sync, internal " + described.isInternal()
                    + ", has id " + !described.topicId().toString().equals("AAAAAAAAAAAAAAAAAAAAAA");
        });
        check("describe a missing topic", () -> describe("missing"));
        check("add partitions", () -> {
            admin.createPartitions(Map.of("created", NewPartitions.increaseTo(5))).all().get();
            return describe("created").partitions().size();
        });
        check("take partitions away", () ->
                admin.createPartitions(Map.of("created", NewPartitions.increaseTo(2))).all().get());
        check("delete a topic", () -> {
            create("deleted", 1);
            admin.deleteTopics(List.of("deleted")).all().get();
            return topicNames().contains("deleted");
        });
        check("delete a missing topic", () -> admin.deleteTopics(List.of("missing")).all().get());
    }

    private void producer() {
        for (String acks : List.of("0", "1", "all")) {
            check("produce with acks=" + acks, () -> {
                String topic = "acks-" + acks;
                create(topic, 1);
                produce(topic, 100, Map.of("acks", acks, "enable.idempotence", "false"));
                return read(topic, 100).size();
            });
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("produce and consume with " + codec, () -> {
                String topic = "compressed-" + codec;
                create(topic, 1);
                produce(topic, 200, Map.of("compression.type", codec, "linger.ms", "50"));
                List<String> values = new ArrayList<>();
                read(topic, 200).forEach(record -> values.add(record.value()));
                return values.equals(numbered(200));
            });
        }
        check("idempotent producer gets ascending offsets", () -> {
            create("idempotent", 1);
            List<Long> offsets = produce("idempotent", 500, Map.of("linger.ms", "0"));
            for (int number = 0; number < offsets.size(); number++) {
                if (offsets.get(number) != number) {
                    return "record " + number + " at offset " + offsets.get(number);
                }
            }
            return offsets.size();
        });
        check("key, value, headers and timestamp come back", () -> {
            create("whole", 1);
            try (KafkaProducer<String, String> producer = newProducer(Map.of())) {
                ProducerRecord<String, String> record =
                        new ProducerRecord<>("whole", 0, FIRST_TIMESTAMP, "key", "value");
                record.headers().add("color", "blue".getBytes(StandardCharsets.UTF_8)).add("empty", null);
                producer.send(record).get();
                String nothing = null;
                producer.send(new ProducerRecord<>("whole", 0, FIRST_TIMESTAMP, "tombstone", nothing)).get();
            }
            List<String> seen = new ArrayList<>();
            for (ConsumerRecord<String, String> record : read("whole", 2)) {
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers()) {
                    headers.append(' ').append(header.key()).append('=');
                    headers.append(header.value() == null ? "null" : new String(header.value(), StandardCharsets.UTF_8));
                }
                seen.add(record.key() + ":" + record.value() + headers + "@" + (record.timestamp() - FIRST_TIMESTAMP));
            }
            return seen;
        });
        check("a record over the limit is refused", () -> {
            create("limited", 1);
            try (KafkaProducer<String, String> producer = newProducer(Map.of("max.request.size", "4000000"))) {
                return producer.send(new ProducerRecord<>("limited", "x".repeat(2_000_000))).get();
            }
        });
        check("producing creates a topic", () -> {
            produce("created-by-use", 1, Map.of());
            return topicNames().contains("created-by-use");
        });
    }

    private void consumer() {
        TopicPartition partition = new TopicPartition("timed", 0);
        check("seek", () -> {
            create("timed", 1);
            produce("timed", 100, Map.of());
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 42);
                return poll(consumer, 1).get(0).value();
            }
        });
        check("seek to the beginning and to the end", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long beginning = consumer.position(partition);
                consumer.seekToEnd(List.of(partition));
                return beginning + ".." + consumer.position(partition);
            }
        });
        check("beginning and end offsets", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                return consumer.beginningOffsets(List.of(partition)).get(partition) + ".."
                        + consumer.endOffsets(List.of(partition)).get(partition);
            }
        });
        check("offsets for times", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                List<Object> found = new ArrayList<>();
                for (long later : List.of(0L, 42L, 99L, 1000L)) {
                    OffsetAndTimestamp offset =
                            consumer.offsetsForTimes(Map.of(partition, FIRST_TIMESTAMP + later)).get(partition);
                    found.add(offset == null ? "none" : offset.offset());
                }
                return found;
            }
        });
        check("partitions of a topic", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                return consumer.partitionsFor("created").size();
            }
        });
        check("beyond the end, without a reset", () -> beyondTheEnd(partition, "none"));
        check("beyond the end, reset to earliest", () -> beyondTheEnd(partition, "earliest"));
        check("at the end, wait for the next record", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                int before = consumer.poll(Duration.ofMillis(50)).count();
                try (KafkaProducer<String, String> producer = newProducer(Map.of())) {
                    producer.send(new ProducerRecord<>("timed", 0, FIRST_TIMESTAMP + 100, null, "fresh"));
                    return before + " then " + poll(consumer, 1).get(0).value();
                }
            }
        });
        check("a record bigger than the fetch limits still arrives", () -> {
            create("big", 1);
            try (KafkaProducer<String, String> producer = newProducer(Map.of())) {
                producer.send(new ProducerRecord<>("big", "x".repeat(500_000))).get();
            }
            try (KafkaConsumer<String, String> consumer =
                    newConsumer(Map.of("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "1000"))) {
                consumer.assign(List.of(new TopicPartition("big", 0)));
                return poll(consumer, 1).get(0).value().length();
            }
        });
        check("read_committed sees plain records", () -> {
            try (KafkaConsumer<String, String> consumer = newConsumer(Map.of("isolation.level", "read_committed"))) {
                consumer.assign(List.of(partition));
                return poll(consumer, 101).size();
            }
        });
    }

    private Object beyondTheEnd(TopicPartition partition, String reset) {
        try (KafkaConsumer<String, String> consumer = newConsumer(Map.of("auto.offset.reset", reset))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1_000_000);
            return poll(consumer, 1).get(0).value();
        }
    }

    private void offsets() {
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
                "earliest", OffsetSpec.earliest(),
                "latest", OffsetSpec.latest(),
                "max timestamp", OffsetSpec.maxTimestamp(),
                "for a timestamp", OffsetSpec.forTimestamp(FIRST_TIMESTAMP + 7),
                "earliest local", OffsetSpec.earliestLocal(),
                "latest tiered", OffsetSpec.latestTiered()));
        specs.forEach((name, spec) -> check("list offsets: " + name, () -> {
            TopicPartition partition = new TopicPartition("timed", 0);
            ListOffsetsResultInfo found = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
            long later = found.timestamp() < 0 ? found.timestamp() : found.timestamp() - FIRST_TIMESTAMP;
            return found.offset() + " at " + later;
        }));
    }

    private void configs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "created");
        check("describe a topic's configs", () -> {
            ConfigEntry retention = config(topic, "retention.ms");
            ConfigEntry cleanup = config(topic, "cleanup.policy");
            return retention.value() + " from " + retention.source() + ", " + cleanup.value() + " from " + cleanup.source();
        });
        check("set, append, subtract and delete a topic's config", () -> {
            List<String> seen = new ArrayList<>();
            alter(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            seen.add(config(topic, "cleanup.policy").value());
            alter(topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
            seen.add(config(topic, "cleanup.policy").value());
            alter(topic, "cleanup.policy", "", AlterConfigOp.OpType.DELETE);
            seen.add(config(topic, "cleanup.policy").value());
            alter(topic, "max.message.bytes", "12345", AlterConfigOp.OpType.SET);
            seen.add(config(topic, "max.message.bytes").value());
            return seen;
        });
        check("set a config to nonsense", () ->
                alter(topic, "retention.ms", "a while", AlterConfigOp.OpType.SET));
        check("set an unknown config", () -> alter(topic, "no.such.config", "1", AlterConfigOp.OpType.SET));
        check("describe the broker's configs", () -> {
            String id = String.valueOf(admin.describeCluster().nodes().get().iterator().next().id());
            ConfigEntry entry = config(new ConfigResource(ConfigResource.Type.BROKER, id), "num.partitions");
            return entry.value() + (entry.isReadOnly() ? " read-only" : "");
        });
        check("alter the brokers' default config", () -> {
            ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
            alter(all, "log.retention.ms", "7200000", AlterConfigOp.OpType.SET);
            ConfigResource other = new ConfigResource(ConfigResource.Type.TOPIC, "defaults");
            ConfigEntry inherited = config(other, "retention.ms");
            // Apache Kafka applies it a moment later.
            for (int tries = 0; tries < 20 && !inherited.value().equals("7200000"); tries++) {
                Thread.sleep(100);
                inherited = config(other, "retention.ms");
            }
            return inherited.value() + " from " + inherited.source();
        });
    }

    private void records() {
        TopicPartition partition = new TopicPartition("timed", 0);
        check("delete records", () -> {
            long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(30)))
                    .lowWatermarks().get(partition).get().lowWatermark();
            return low + ", first is now " + read("timed", 1).get(0).value();
        });
        check("delete records beyond the end", () ->
                admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(10_000))).all().get());
        check("describe log directories", () -> {
            int broker = admin.describeCluster().nodes().get().iterator().next().id();
            return admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values().stream()
                    .anyMatch(directory -> directory.replicaInfos().get(partition).size() > 0);
        });
    }

    private void cluster() {
        check("describe the cluster", () -> {
            boolean named = !admin.describeCluster().clusterId().get().isEmpty();
            int nodes = admin.describeCluster().nodes().get().size();
            return nodes + " node, controller " + (admin.describeCluster().controller().get() != null) + ", id " + named;
        });
        check("describe features", () -> admin.describeFeatures().featureMetadata().get() != null);
    }

    private Void create(String topic, int partitions) throws Exception {
        return admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    private Set<String> topicNames() throws Exception {
        return admin.listTopics().names().get();
    }

    private TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private ConfigEntry config(ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private Void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType operation)
            throws Exception {
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), operation));
        return admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    /** Sends numbered records, a millisecond apart by their timestamps, and returns their offsets. */
    private List<Long> produce(String topic, int count, Map<String, String> settings) throws Exception {
        try (KafkaProducer<String, String> producer = newProducer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(
                        new ProducerRecord<>(topic, 0, FIRST_TIMESTAMP + number, null, "record " + number)));
            }
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get().offset());
            }
            return offsets;
        }
    }

    private static List<String> numbered(int count) {
        List<String> values = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            values.add("record " + number);
        }
        return values;
    }

    private List<ConsumerRecord<String, String>> read(String topic, int count) {
        try (KafkaConsumer<String, String> consumer = newConsumer(Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return poll(consumer, count);
        }
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    private KafkaProducer<String, String> newProducer(Map<String, String> settings) {
        Properties properties = properties(settings);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(properties);
    }

    private KafkaConsumer<String, String> newConsumer(Map<String, String> settings) {
        Properties properties = properties(Map.of("auto.offset.reset", "earliest", "fetch.max.wait.ms", "50"));
        properties.putAll(settings);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(properties);
    }

    private Properties properties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(settings);
        return properties;
    }
}
