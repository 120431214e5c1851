package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topics checks that topics are created, described, listed, given partitions and deleted.
func topics(t *trial) {
	settings := map[string]*string{"retention.ms": kadm.StringPtr("3600000")}
	created, err := t.admin.CreateTopic(t.ctx, 2, 1, settings, t.topic)
	must(err, "create a topic")
	expect("partitions of the new topic", created.NumPartitions, 2)
	expect("replicas of the new topic", created.ReplicationFactor, 1)
	retention := created.Configs["retention.ms"]
	expect("retention.ms of the new topic", retention.MaybeValue(), "3600000")
	_, err = t.admin.CreateTopic(t.ctx, 2, 1, nil, t.topic)
	expectError("create it again", err, kerr.TopicAlreadyExists)

	described := t.describe()
	expect("id of the topic", described.ID, created.ID)
	expect("topic is internal", described.IsInternal, false)
	expect("partitions described", len(described.Partitions), 2)
	brokers, err := t.admin.ListBrokers(t.ctx)
	must(err, "list brokers")
	expect("brokers", len(brokers), 1)
	for _, partition := range described.Partitions.Sorted() {
		must(partition.Err, "describe a partition")
		expect("leader", partition.Leader, brokers[0].NodeID)
		expect("replicas", fmt.Sprint(partition.Replicas), fmt.Sprint([]int32{partition.Leader}))
		expect("replicas in sync", fmt.Sprint(partition.ISR), fmt.Sprint([]int32{partition.Leader}))
	}

	added, err := t.admin.CreatePartitions(t.ctx, 3, t.topic)
	must(err, "add partitions")
	must(added.Error(), "add partitions")
	expect("partitions after some were added", len(t.describe().Partitions), 5)
	fewer, err := t.admin.UpdatePartitions(t.ctx, 1, t.topic)
	must(err, "take partitions away")
	expectError("take partitions away", fewer.Error(), kerr.InvalidPartitions)

	expect("topic is listed", t.lists(), true)
	_, err = t.admin.DeleteTopic(t.ctx, t.topic)
	must(err, "delete the topic")
	expect("topic is listed after its deletion", t.lists(), false)
	_, err = t.admin.DeleteTopic(t.ctx, t.topic)
	expectError("delete it again", err, kerr.UnknownTopicOrPartition)
}

// configs checks that a topic's configs are described, and altered one by one.
func configs(t *trial) {
	t.create(1)
	expectConfig(t, "cleanup.policy", "delete", kmsg.ConfigSourceDefaultConfig)
	alter := func(op kadm.IncrementalOp, name, value string) error {
		change := kadm.AlterConfig{Op: op, Name: name}
		if op != kadm.DeleteConfig {
			change.Value = kadm.StringPtr(value)
		}
		altered, err := t.admin.AlterTopicConfigs(t.ctx, []kadm.AlterConfig{change}, t.topic)
		must(err, "alter configs")
		answer, err := altered.On(t.topic, nil)
		must(err, "find the answer for the topic")
		return answer.Err
	}
	must(alter(kadm.SetConfig, "retention.ms", "12345678"), "set a config")
	expectConfig(t, "retention.ms", "12345678", kmsg.ConfigSourceDynamicTopicConfig)
	must(alter(kadm.AppendConfig, "cleanup.policy", "compact"), "append to a config")
	expectConfig(t, "cleanup.policy", "delete,compact", kmsg.ConfigSourceDynamicTopicConfig)
	expectConfig(t, "retention.ms", "12345678", kmsg.ConfigSourceDynamicTopicConfig)
	must(alter(kadm.SubtractConfig, "cleanup.policy", "delete"), "subtract from a config")
	expectConfig(t, "cleanup.policy", "compact", kmsg.ConfigSourceDynamicTopicConfig)
	must(alter(kadm.DeleteConfig, "cleanup.policy", ""), "delete a config")
	expectConfig(t, "cleanup.policy", "delete", kmsg.ConfigSourceDefaultConfig)
	expectError("set a config to nonsense", alter(kadm.SetConfig, "retention.ms", "soon"), kerr.InvalidConfig)
	expectConfig(t, "retention.ms", "12345678", kmsg.ConfigSourceDynamicTopicConfig)
}

// offsets checks that offsets are found by position and by time, and that deleted records are gone.
func offsets(t *trial) {
	t.create(1)
	const count = 100
	t.produce(t.producer(), numbered(count, 1))
	expectOffset(t, "start", got(t.admin.ListStartOffsets(t.ctx, t.topic)), 0, -1)
	expectOffset(t, "end", got(t.admin.ListEndOffsets(t.ctx, t.topic)), count, -1)
	expectOffset(t, "stable end", got(t.admin.ListCommittedOffsets(t.ctx, t.topic)), count, -1)
	newest := millisecond(count - 1)
	expectOffset(t, "newest record", got(t.admin.ListMaxTimestampOffsets(t.ctx, t.topic)), count-1, newest)
	for _, number := range []int{0, 42, count - 1} {
		after := got(t.admin.ListOffsetsAfterMilli(t.ctx, millisecond(number), t.topic))
		expectOffset(t, fmt.Sprintf("at millisecond %d", number), after, int64(number), millisecond(number))
	}
	before := got(t.admin.ListOffsetsAfterMilli(t.ctx, millisecond(-1000), t.topic))
	expectOffset(t, "a second before the first record", before, 0, millisecond(0))
	// If there is no such record, kadm requests the end.
	never := got(t.admin.ListOffsetsAfterMilli(t.ctx, millisecond(count), t.topic))
	expectOffset(t, "after the last record", never, count, -1)

	const left = 30
	deleted := got(t.admin.DeleteRecords(t.ctx, t.recordsBefore(left)))
	must(deleted.Error(), "delete records")
	answer, _ := deleted.Lookup(t.topic, 0)
	expect("start told after a deletion", answer.LowWatermark, left)
	expectOffset(t, "start after a deletion", got(t.admin.ListStartOffsets(t.ctx, t.topic)), left, -1)
	expectOffset(t, "end after a deletion", got(t.admin.ListEndOffsets(t.ctx, t.topic)), count, -1)
	first := t.read(t.consumer(1), 1)[0]
	expect("first offset after a deletion", first.Offset, left)
	expect("first value after a deletion", string(first.Value), "record 30")
	beyond := got(t.admin.DeleteRecords(t.ctx, t.recordsBefore(count+1)))
	expectError("delete records beyond the end", beyond.Error(), kerr.OffsetOutOfRange)
}

// topics describes the named topics, or all; a new client has no cached metadata.
func (t *trial) topics(names ...string) kadm.TopicDetails {
	return got(kadm.NewClient(t.client()).ListTopics(t.ctx, names...))
}

func (t *trial) describe() kadm.TopicDetail {
	details := t.topics(t.topic)
	must(details.Error(), "describe the topic")
	return details[t.topic]
}

// lists reports whether the topic is among all topics.
func (t *trial) lists() bool {
	return t.topics().Has(t.topic)
}

func (t *trial) recordsBefore(offset int64) kadm.Offsets {
	return kadm.Offsets{t.topic: {0: {Topic: t.topic, Partition: 0, At: offset, LeaderEpoch: -1}}}
}

// millisecond is the timestamp of a numbered record.
func millisecond(number int) int64 {
	return firstTimestamp.Add(time.Duration(number) * time.Millisecond).UnixMilli()
}

// expectError fails unless an action was rejected with the right error.
func expectError(action string, seen, right error) {
	if !errors.Is(seen, right) {
		fail("%s: %v, expected %v", action, seen, right)
	}
}

func expectOffset(t *trial, what string, listed kadm.ListedOffsets, offset, timestamp int64) {
	seen, found := listed.Lookup(t.topic, 0)
	expect(what+" is told", found, true)
	must(seen.Err, what)
	expect(what, seen.Offset, offset)
	expect("timestamp of "+what, seen.Timestamp, timestamp)
}

func expectConfig(t *trial, name, value string, source kmsg.ConfigSource) {
	described, err := got(t.admin.DescribeTopicConfigs(t.ctx, t.topic)).On(t.topic, nil)
	must(err, "describe configs")
	must(described.Err, "describe configs")
	for _, config := range described.Configs {
		if config.Key == name {
			expect(name, config.MaybeValue(), value)
			expect("source of "+name, config.Source, source)
			return
		}
	}
	fail("%s is not among the topic's %d configs", name, len(described.Configs))
}
