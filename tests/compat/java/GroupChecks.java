import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ConsumerGroupState;
import org.apache.kafka.common.TopicPartition;

/**
 * Uses the Java client's classic groups as applications would, and prints what it saw: one line per check with
 * its outcome ("value" or "error"), its name and the value, tab-separated. What is right is for the caller to say.
 */
@SuppressWarnings({"deprecation", "removal"})
public final class GroupChecks {
    interface Check {
        Object run() throws Exception;
    }

    private static final int PARTITIONS = 4;
    private static final Duration SHORTLY = Duration.ofMillis(30);
    private static final long PATIENCE_MS = 20_000;
    private static final long FIRST_TIMESTAMP = System.currentTimeMillis() - 600_000;

    private final String bootstrap;
    private final Admin admin;
    private int numbers = 0;

    private GroupChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties(Map.of()));
    }

    public static void main(String[] arguments) throws Exception {
        GroupChecks checks = new GroupChecks(arguments[0]);
        for (String topic : List.of("orders", "payments")) {
            checks.admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            checks.fill(topic, 40);
        }
        checks.rebalances();
        checks.staticMembers();
        checks.offsets();
        checks.refusals();
        checks.administration();
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

    // Rebalancing

    private void rebalances() {
        for (Class<?> assignor : List.of(
                RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class, CooperativeStickyAssignor.class)) {
            check("share with " + assignor.getSimpleName(), () -> {
                Map<String, Object> settings = Map.of("partition.assignment.strategy", assignor.getName());
                try (Member one = join(group(), settings); Member two = join(lastGroup(), settings)) {
                    divide(one, two);
                    String shared = sizes(one, two);
                    two.close();
                    await(() -> one.owned().size() == PARTITIONS, one);
                    return shared + " then " + sizes(one);
                }
            });
        }
        check("cooperative rebalances take away only what moves", () -> {
            Map<String, Object> settings =
                    Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            try (Member one = join(group(), settings)) {
                await(() -> one.owned().size() == PARTITIONS, one);
                try (Member two = join(lastGroup(), settings)) {
                    divide(one, two);
                    return one.revoked + " revoked";
                }
            }
        });
        check("from eager to cooperative", () -> {
            String eager = RangeAssignor.class.getName();
            String both = CooperativeStickyAssignor.class.getName() + "," + eager;
            try (Member one = join(group(), Map.of("partition.assignment.strategy", eager));
                    Member two = join(lastGroup(), Map.of("partition.assignment.strategy", both))) {
                divide(one, two);
                return describe(lastGroup()).partitionAssignor();
            }
        });
        check("a member that dies", () -> {
            Member dead = join(group(), Map.of("internal.leave.group.on.close", "false"));
            try (Member alive = join(lastGroup(), Map.of())) {
                divide(dead, alive);
                dead.close();
                await(() -> alive.owned().size() == PARTITIONS, alive);
                return sizes(alive);
            }
        });
        check("a member that does not poll", () -> {
            try (Member slow = join(group(), Map.of("max.poll.interval.ms", "1000"));
                    Member other = join(lastGroup(), Map.of())) {
                divide(slow, other);
                await(() -> other.owned().size() == PARTITIONS, other);
                return sizes(other);
            }
        });
        check("subscribe to a pattern", () -> {
            try (Member member = new Member(group(), Map.of())) {
                member.consumer.subscribe(Pattern.compile("orders|pay.*"), member);
                await(() -> member.owned().size() == 2 * PARTITIONS, member);
                return sizes(member);
            }
        });
        check("change the subscription", () -> {
            try (Member member = join(group(), Map.of())) {
                await(() -> member.owned().size() == PARTITIONS, member);
                member.consumer.subscribe(List.of("payments"), member);
                await(() -> member.owned().contains(new TopicPartition("payments", 0)), member);
                return sizes(member);
            }
        });
        check("a topic that grows", () -> {
            admin.createTopics(List.of(new NewTopic("growing", 1, (short) 1))).all().get();
            try (Member member = new Member(group(), Map.of("metadata.max.age.ms", "500"))) {
                member.consumer.subscribe(List.of("growing"), member);
                await(() -> member.owned().size() == 1, member);
                admin.createPartitions(Map.of("growing", NewPartitions.increaseTo(3))).all().get();
                await(() -> member.owned().size() == 3, member);
                return sizes(member);
            }
        });
        check("every record goes to one member", () -> {
            try (Member one = join(group(), Map.of()); Member two = join(lastGroup(), Map.of())) {
                await(() -> one.records.size() + two.records.size() >= 40, one, two);
                Set<Integer> values = new TreeSet<>(one.values());
                values.addAll(two.values());
                return values.size();
            }
        });
        check("enforce a rebalance", () -> {
            try (Member member = join(group(), Map.of())) {
                await(() -> member.owned().size() == PARTITIONS, member);
                int before = member.consumer.groupMetadata().generationId();
                member.consumer.enforceRebalance("because");
                await(() -> member.consumer.groupMetadata().generationId() > before, member);
                return member.consumer.groupMetadata().generationId() - before;
            }
        });
    }

    private void staticMembers() {
        check("a static member comes back", () -> {
            Member one = join(group(), instance("one"));
            try (Member two = join(lastGroup(), instance("two"))) {
                divide(one, two);
                Set<TopicPartition> before = one.owned();
                int assigned = two.assigned;
                one.close();
                try (Member again = join(lastGroup(), instance("one"))) {
                    await(() -> again.owned().equals(before), again, two);
                    return "rebalanced " + (two.assigned - assigned) + " times";
                }
            }
        });
        check("an instance id twice", () -> {
            try (Member old = join(group(), instance("one"))) {
                await(() -> old.owned().size() == PARTITIONS, old);
                try (Member again = join(lastGroup(), instance("one"))) {
                    await(() -> false, old, again);
                    return "both live";
                }
            }
        });
        check("remove a static member", () -> {
            try (Member one = join(group(), instance("one")); Member two = join(lastGroup(), instance("two"))) {
                divide(one, two);
                admin.removeMembersFromConsumerGroup(lastGroup(),
                        new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all().get();
                await(() -> two.owned().size() == PARTITIONS, two);
                return sizes(two);
            }
        });
        check("remove an unknown static member", () -> {
            try (Member one = join(group(), instance("one"))) {
                await(() -> one.owned().size() == PARTITIONS, one);
                return admin.removeMembersFromConsumerGroup(lastGroup(),
                        new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get();
            }
        });
        check("remove all members", () -> {
            try (Member one = join(group(), Map.of()); Member two = join(lastGroup(), instance("two"))) {
                divide(one, two);
                admin.removeMembersFromConsumerGroup(lastGroup(), new RemoveMembersFromConsumerGroupOptions())
                        .all().get();
                return describe(lastGroup()).members().size();
            }
        });
    }

    // Offsets

    private void offsets() {
        TopicPartition first = new TopicPartition("orders", 0);
        check("commit and go on", () -> {
            try (Member member = join(group(), Map.of())) {
                await(() -> member.records.size() >= 40, member);
                member.consumer.commitSync(Map.of(first, new OffsetAndMetadata(4, "note")));
            }
            try (Member member = join(lastGroup(), Map.of())) {
                await(() -> member.records.size() == 36, member);
                OffsetAndMetadata committed = member.consumer.committed(Set.of(first)).get(first);
                long next = member.records.stream().filter(record -> record.partition() == 0)
                        .mapToLong(ConsumerRecord::offset).min().getAsLong();
                return committed.offset() + " " + committed.metadata() + ", goes on at " + next;
            }
        });
        check("commit without waiting", () -> {
            try (Member member = join(group(), Map.of())) {
                await(() -> member.records.size() >= 40, member);
                List<Object> outcomes = new ArrayList<>();
                member.consumer.commitAsync((offsets, error) -> outcomes.add(error == null ? offsets.size() : error));
                await(() -> !outcomes.isEmpty(), member);
                return outcomes;
            }
        });
        check("commit on close", () -> {
            try (Member member = join(group(), Map.of("enable.auto.commit", "true"))) {
                await(() -> member.records.size() >= 40, member);
            }
            return new TreeMap<>(admin.listConsumerGroupOffsets(lastGroup()).partitionsToOffsetAndMetadata().get()
                    .entrySet().stream().collect(Collectors.toMap(
                            entry -> entry.getKey().toString(), entry -> entry.getValue().offset())));
        });
        check("go back in time", () -> {
            try (Member member = join(group(), Map.of())) {
                await(() -> member.owned().size() == PARTITIONS, member);
                long offset = member.consumer.offsetsForTimes(Map.of(first, FIRST_TIMESTAMP + 20)).get(first).offset();
                member.consumer.seek(first, offset);
                return offset + " then " + member.consumer.position(first);
            }
        });
        check("commit of a member that was left behind", () -> {
            try (Member slow = join(group(), Map.of("max.poll.interval.ms", "1000"));
                    Member other = join(lastGroup(), Map.of())) {
                divide(slow, other);
                await(() -> other.owned().size() == PARTITIONS, other);
                slow.consumer.commitSync(Map.of(first, new OffsetAndMetadata(1)));
                return "committed";
            }
        });
        check("commit into others' group", () -> {
            try (Member member = join(group(), Map.of()); Member stranger = new Member(lastGroup(), Map.of())) {
                await(() -> member.owned().size() == PARTITIONS, member);
                stranger.consumer.assign(List.of(first));
                stranger.consumer.commitSync(Map.of(first, new OffsetAndMetadata(1)));
                return "committed";
            }
        });
        check("commit without being a member", () -> {
            try (Member alone = new Member(group(), Map.of())) {
                alone.consumer.assign(List.of(first));
                alone.consumer.commitSync(Map.of(first, new OffsetAndMetadata(7)));
                return alone.consumer.committed(Set.of(first)).get(first).offset();
            }
        });
        check("commit too much metadata", () -> {
            try (Member alone = new Member(group(), Map.of())) {
                alone.consumer.assign(List.of(first));
                alone.consumer.commitSync(Map.of(first, new OffsetAndMetadata(7, "x".repeat(5000))));
                return "committed";
            }
        });
    }

    // What is refused

    private void refusals() {
        check("no common assignor", () -> {
            try (Member one = join(group(), Map.of("partition.assignment.strategy", RangeAssignor.class.getName()));
                    Member two = join(lastGroup(),
                            Map.of("partition.assignment.strategy", RoundRobinAssignor.class.getName()))) {
                await(() -> one.owned().size() == PARTITIONS, one);
                await(() -> false, two, one);
                return "both live";
            }
        });
        check("too short a session", () -> {
            try (Member member =
                    join(group(), Map.of("session.timeout.ms", "100", "heartbeat.interval.ms", "30"))) {
                await(() -> false, member);
                return "it lives";
            }
        });
    }

    // Administration

    private void administration() throws Exception {
        TopicPartition first = new TopicPartition("orders", 0);
        try (Member member = join("administered", Map.of("client.id", "the-client"))) {
            await(() -> member.owned().size() == PARTITIONS, member);
            member.consumer.commitSync(Map.of(first, new OffsetAndMetadata(3)));
            check("describe a group", () -> {
                ConsumerGroupDescription described = describe("administered");
                var only = described.members().iterator().next();
                return described.state() + " " + described.partitionAssignor() + " " + described.isSimpleConsumerGroup()
                        + " " + only.clientId() + " " + only.host() + " " + only.assignment().topicPartitions().size();
            });
            check("list groups by state", () -> listed(new ListConsumerGroupsOptions()
                    .inStates(Set.of(ConsumerGroupState.STABLE)), "administered"));
            check("list groups by another state", () -> listed(new ListConsumerGroupsOptions()
                    .inStates(Set.of(ConsumerGroupState.EMPTY)), "administered"));
            check("delete a group with members", () ->
                    admin.deleteConsumerGroups(List.of("administered")).all().get());
            check("delete offsets in use", () ->
                    admin.deleteConsumerGroupOffsets("administered", Set.of(first)).partitionResult(first).get());
            check("alter offsets of a group with members", () -> admin
                    .alterConsumerGroupOffsets("administered", Map.of(first, new OffsetAndMetadata(1))).all().get());
        }
        check("describe an empty group", () -> describe("administered").state());
        check("alter offsets", () -> {
            admin.alterConsumerGroupOffsets("administered", Map.of(first, new OffsetAndMetadata(1))).all().get();
            return admin.listConsumerGroupOffsets("administered").partitionsToOffsetAndMetadata().get()
                    .get(first).offset();
        });
        check("delete offsets", () -> {
            admin.deleteConsumerGroupOffsets("administered", Set.of(first)).all().get();
            return admin.listConsumerGroupOffsets("administered").partitionsToOffsetAndMetadata().get().size();
        });
        check("delete a group", () -> {
            admin.deleteConsumerGroups(List.of("administered")).all().get();
            return listed(new ListConsumerGroupsOptions(), "administered");
        });
        check("delete a missing group", () -> admin.deleteConsumerGroups(List.of("administered")).all().get());
        check("describe a missing group", () -> describe("administered").state());
    }

    private boolean listed(ListConsumerGroupsOptions options, String group) throws Exception {
        return admin.listConsumerGroups(options).all().get().stream().anyMatch(found -> found.groupId().equals(group));
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    // Means

    /** A consumer that remembers what happened to it. */
    private final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();
        int assigned = 0;
        int revoked = 0;
        private boolean closed = false;

        Member(String group, Map<String, Object> more) {
            Properties settings = properties(Map.of("group.id", group, "auto.offset.reset", "earliest",
                    "enable.auto.commit", "false", "session.timeout.ms", "1500", "heartbeat.interval.ms", "200",
                    "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
                    "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
            settings.putAll(more);
            this.consumer = new KafkaConsumer<>(settings);
        }

        void poll() {
            consumer.poll(SHORTLY).forEach(records::add);
        }

        Set<TopicPartition> owned() {
            return consumer.assignment();
        }

        List<Integer> values() {
            return records.stream().map(record -> Integer.parseInt(record.value())).toList();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked += partitions.size();
        }

        @Override
        public void close() {
            if (!closed) {
                closed = true;
                consumer.close(Duration.ofSeconds(2));
            }
        }
    }

    private Member join(String group, Map<String, Object> more) {
        Member member = new Member(group, more);
        member.consumer.subscribe(List.of("orders"), member);
        return member;
    }

    private static Map<String, Object> instance(String id) {
        return Map.of("group.instance.id", id, "session.timeout.ms", "20000");
    }

    private static void divide(Member one, Member two) {
        await(() -> one.owned().size() == 2 && two.owned().size() == 2, one, two);
    }

    private static void await(BooleanSupplier condition, Member... members) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("it did not come about in time");
            }
            Arrays.stream(members).forEach(Member::poll);
        }
    }

    private static String sizes(Member... members) {
        return Arrays.stream(members).map(member -> member.owned().size()).toList().toString();
    }

    private String group() {
        numbers++;
        return lastGroup();
    }

    private String lastGroup() {
        return "group-" + numbers;
    }

    private void fill(String topic, int count) throws Exception {
        Properties settings = properties(Map.of(
                "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
                "value.serializer", "org.apache.kafka.common.serialization.StringSerializer"));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(
                        topic, number % PARTITIONS, FIRST_TIMESTAMP + number, null, Integer.toString(number)));
            }
        }
    }

    private Properties properties(Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.putAll(more);
        return settings;
    }
}
