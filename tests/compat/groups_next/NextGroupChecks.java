import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/**
 * Uses groups of the consumer protocol as an application would, and prints what it saw: one line per check with
 * its outcome ("value" or "error"), its name and the value, tab-separated. What is right is for the caller to say.
 */
public final class NextGroupChecks {
    interface Check {
        Object run() throws Exception;
    }

    private static final long PATIENCE_MS = 30_000;
    private static final int PARTITIONS = 4;

    private final String bootstrap;
    private final Admin admin;
    private final List<KafkaConsumer<String, String>> members = new ArrayList<>();

    private NextGroupChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties(Map.of()));
    }

    public static void main(String[] arguments) {
        NextGroupChecks checks = new NextGroupChecks(arguments[0]);
        checks.sharing();
        checks.administration();
        checks.statics();
        checks.subscriptions();
        checks.migration();
        checks.admin.close(Duration.ofSeconds(1));
        // Idle clients' threads must not keep the process alive.
        System.exit(0);
    }

    private void sharing() {
        String topic = topic("shared", 40);
        KafkaConsumer<String, String> first = join("sharing", Map.of(), topic);
        check("the first member reads everything", () -> read(first, 40).size());
        check("two members share", () -> {
            join("sharing", Map.of(), topic);
            return share(PARTITIONS);
        });
        check("three members share", () -> {
            join("sharing", Map.of(), topic);
            return share(PARTITIONS);
        });
        check("new partitions are shared", () -> {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all().get();
            return share(6);
        });
        check("the remaining member has everything", () -> {
            leave(members.get(2));
            leave(members.get(1));
            return share(6);
        });
        check("committed offsets", () -> {
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7, "seven"));
            first.commitSync(offsets);
            return first.committed(offsets.keySet()).get(new TopicPartition(topic, 0)).metadata();
        });
    }

    private void administration() {
        check("describe a group in use", () -> {
            ConsumerGroupDescription group = describe("sharing");
            return group.type() + " " + group.state() + " " + group.partitionAssignor() + " "
                    + group.members().size() + " member with "
                    + group.members().iterator().next().assignment().topicPartitions().size();
        });
        check("list consumer groups by type", () ->
                admin.listConsumerGroups(new ListConsumerGroupsOptions().withTypes(Set.of(GroupType.CONSUMER)))
                        .all().get().stream().anyMatch(group -> group.groupId().equals("sharing")));
        check("delete a group in use", () -> admin.deleteConsumerGroups(List.of("sharing")).all().get());
        leaveAll();
        check("describe an empty group", () -> describe("sharing").state());
        check("its offsets are there", () ->
                admin.listConsumerGroupOffsets("sharing").partitionsToOffsetAndMetadata().get().size() > 0);
        check("delete an empty group", () -> admin.deleteConsumerGroups(List.of("sharing")).all().get());
    }

    private void statics() {
        String topic = topic("static", 4);
        KafkaConsumer<String, String> one = join("statics", Map.of("group.instance.id", "one"), topic);
        KafkaConsumer<String, String> two = join("statics", Map.of("group.instance.id", "two"), topic);
        check("static members share", () -> share(PARTITIONS));
        check("a static member that is back has what it had", () -> {
            Set<TopicPartition> had = one.assignment();
            leave(one);
            KafkaConsumer<String, String> again = join("statics", Map.of("group.instance.id", "one"), topic);
            share(PARTITIONS);
            return again.assignment().equals(had);
        });
        check("the same instance twice", () -> {
            KafkaConsumer<String, String> twin = join("statics", Map.of("group.instance.id", "two"), topic);
            return pollUntil(() -> !twin.assignment().isEmpty());
        });
        leaveAll();
    }

    private void subscriptions() {
        String topic = topic("matched-1", 4);
        topic("matched-2", 4);
        check("a client's pattern", () -> {
            KafkaConsumer<String, String> member = consumer("patterns", Map.of());
            member.subscribe(Pattern.compile("matched-.*"));
            return share(2 * PARTITIONS);
        });
        leaveAll();
        check("a broker's pattern", () -> {
            subscribeByBroker(consumer("regexes", Map.of()), "matched-.*");
            return share(2 * PARTITIONS);
        });
        leaveAll();
        check("a pattern that makes no sense", () -> {
            KafkaConsumer<String, String> member = consumer("senseless", Map.of());
            subscribeByBroker(member, "(");
            return pollUntil(() -> !member.assignment().isEmpty());
        });
        leaveAll();
        check("the range assignor", () -> {
            Map<String, Object> range = Map.of("group.remote.assignor", "range");
            join("ranges", range, "matched-1", "matched-2");
            join("ranges", range, "matched-1", "matched-2");
            share(2 * PARTITIONS);
            return members.stream().allMatch(member -> indexes(member, "matched-1").equals(indexes(member, "matched-2")));
        });
        leaveAll();
        check("an unknown assignor", () -> {
            KafkaConsumer<String, String> member = join("odd", Map.of("group.remote.assignor", "odd"), topic);
            return pollUntil(() -> !member.assignment().isEmpty());
        });
        leaveAll();
        check("a changed subscription", () -> {
            KafkaConsumer<String, String> member = join("changing", Map.of(), "matched-1");
            share(PARTITIONS);
            member.subscribe(List.of("matched-2"));
            pollUntil(() -> !indexes(member, "matched-2").isEmpty());
            return indexes(member, "matched-1") + " " + indexes(member, "matched-2");
        });
        leaveAll();
    }

    private void migration() {
        String topic = topic("migrated", 40);
        Map<String, Object> classic = Map.of(
                "group.protocol", "classic",
                "heartbeat.interval.ms", 200,
                "session.timeout.ms", 6000,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        join("migrating", classic, topic);
        join("migrating", classic, topic);
        check("classic members share", () -> share(PARTITIONS) + " " + describe("migrating").type());
        check("both kinds share", () -> {
            join("migrating", Map.of(), topic);
            return share(PARTITIONS) + " " + describe("migrating").type();
        });
        check("the last classic member goes", () -> {
            leave(members.get(0));
            leave(members.get(0));
            return share(PARTITIONS) + " " + describe("migrating").type();
        });
        check("a classic member joins", () -> {
            join("migrating", classic, topic);
            return share(PARTITIONS) + " " + describe("migrating").type();
        });
        check("only the classic member stays", () -> {
            leave(members.get(0));
            return share(PARTITIONS) + " " + describe("migrating").type();
        });
        leaveAll();
    }

    // Steps

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

    private String topic(String name, int records) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(Map.of()))) {
            admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get();
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(name, number % PARTITIONS, null, "record " + number));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return name;
    }

    private KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Properties properties = properties(Map.of("group.id", group, "group.protocol", "consumer"));
        properties.putAll(more);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        members.add(consumer);
        return consumer;
    }

    private KafkaConsumer<String, String> join(String group, Map<String, Object> more, String... topics) {
        KafkaConsumer<String, String> consumer = consumer(group, more);
        consumer.subscribe(Arrays.asList(topics));
        return consumer;
    }

    /** By a pattern that the broker matches, which clients before 4.0 cannot. */
    private static void subscribeByBroker(KafkaConsumer<String, String> consumer, String pattern) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
        Object subscription = type.getConstructor(String.class).newInstance(pattern);
        KafkaConsumer.class.getMethod("subscribe", type).invoke(consumer, subscription);
    }

    private void leave(KafkaConsumer<String, String> member) {
        members.remove(member);
        member.close();
    }

    private void leaveAll() {
        while (!members.isEmpty()) {
            leave(members.get(0));
        }
    }

    private List<String> read(KafkaConsumer<String, String> member, int count) {
        List<String> values = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (values.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(100))) {
                values.add(record.value());
            }
        }
        return values;
    }

    private boolean pollUntil(BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < deadline) {
            for (KafkaConsumer<String, String> member : members) {
                member.poll(Duration.ofMillis(20));
            }
        }
        return condition.getAsBoolean();
    }

    /** Polls until all partitions are owned, spread evenly over the members; returns the number of each. */
    private String share(int partitions) {
        pollUntil(() -> {
            Set<TopicPartition> owned = members.stream().flatMap(member -> member.assignment().stream())
                    .collect(Collectors.toSet());
            List<Integer> loads = loads();
            int total = loads.stream().mapToInt(Integer::intValue).sum();
            return owned.size() == partitions && total == partitions
                    && loads.get(loads.size() - 1) - loads.get(0) <= 1;
        });
        return loads().toString();
    }

    private List<Integer> loads() {
        return members.stream().map(member -> member.assignment().size()).sorted().collect(Collectors.toList());
    }

    private static Collection<Integer> indexes(KafkaConsumer<String, String> member, String topic) {
        return member.assignment().stream().filter(partition -> partition.topic().equals(topic))
                .map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private Properties properties(Map<String, Object> more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("metadata.max.age.ms", 1000);
        properties.putAll(more);
        return properties;
    }
}
