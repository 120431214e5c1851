package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 4

// A member is a consumer of the trial's group that keeps track of its partitions.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	owned map[int32]bool
}

// A protocol is the way members join, and the group type that the broker reports.
type protocol struct {
	settings []kgo.Opt
	kind     string
	describe func(*trial) (state, assignor string, members int)
}

func classicGroup(t *trial) {
	settings := []kgo.Opt{kgo.HeartbeatInterval(100 * time.Millisecond)}
	group(t, protocol{settings, "classic", describeClassic}, "cooperative-sticky")
}

func nextGenerationGroup(t *trial) {
	settings := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	group(t, protocol{settings, "consumer", describeNextGeneration}, "uniform")
}

// group checks that a member resumes where another stopped, and that members share the partitions.
func group(t *trial, protocol protocol, assignor string) {
	const count, half = 40, 15
	t.create(groupPartitions)
	t.produce(t.producer(), numbered(count, groupPartitions))
	changes := make(chan struct{}, 1)

	first := t.join(protocol, changes)
	read := t.read(first.Client, half)
	must(first.CommitRecords(t.ctx, read...), "commit")
	state, seen, members := protocol.describe(t)
	expect("state of the group", state, "Stable")
	expect("assignor of the group", seen, assignor)
	expect("members of the group", members, 1)
	_, listed := got(t.admin.ListGroupsByType(t.ctx, []string{protocol.kind}))[t.topic]
	expect("group is listed by its type", listed, true)
	first.Close()
	state, _, members = protocol.describe(t)
	expect("state of the group without members", state, "Empty")
	expect("members of the left group", members, 0)
	expect("records committed by the first member", t.committed(), half)

	second := t.join(protocol, changes)
	rest := t.read(second.Client, count-half)
	expectEachOnce(append(values(read), values(rest)...), count)
	must(second.CommitRecords(t.ctx, rest...), "commit")
	expect("records committed by both members", t.committed(), count)

	third := t.join(protocol, changes)
	t.await(changes, "two members share", func() bool { return shared(second, third) })
	second.Close()
	t.await(changes, "the last member has all", func() bool { return third.count() == groupPartitions })
	_, _, members = protocol.describe(t)
	expect("members after one left", members, 1)
}

// join adds a member to the group, which reports changes to its partitions.
func (t *trial) join(protocol protocol, changes chan<- struct{}) *member {
	m := &member{owned: map[int32]bool{}}
	note := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range partitions[t.topic] {
				if owned {
					m.owned[partition] = true
				} else {
					delete(m.owned, partition)
				}
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}
	m.Client = t.client(append(protocol.settings,
		kgo.ConsumerGroup(t.topic),
		kgo.ConsumeTopics(t.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(note(true)),
		kgo.OnPartitionsRevoked(note(false)),
		kgo.OnPartitionsLost(note(false)),
	)...)
	return m
}

// await waits until a condition holds for the members' partitions.
func (t *trial) await(changes <-chan struct{}, what string, isTrue func() bool) {
	for !isTrue() {
		select {
		case <-changes:
		case <-t.ctx.Done():
			fail("%s: not within %v", what, patience)
		}
	}
}

func (m *member) partitions() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	var owned []int32
	for partition := range m.owned {
		owned = append(owned, partition)
	}
	return owned
}

func (m *member) count() int {
	return len(m.partitions())
}

// shared reports whether two members have half of the partitions each, and together all.
func shared(one, other *member) bool {
	all := slices.Concat(one.partitions(), other.partitions())
	slices.Sort(all)
	return one.count() == other.count() && len(slices.Compact(all)) == groupPartitions
}

// committed is how many records of the topic the group has committed.
func (t *trial) committed() int {
	sum := 0
	for _, offset := range got(t.admin.FetchOffsets(t.ctx, t.topic)).Sorted() {
		must(offset.Err, "fetch a committed offset")
		sum += int(offset.At)
	}
	return sum
}

func describeClassic(t *trial) (state, assignor string, members int) {
	described := got(t.admin.DescribeGroups(t.ctx, t.topic))[t.topic]
	must(described.Err, "describe the group")
	return described.State, described.Protocol, len(described.Members)
}

func describeNextGeneration(t *trial) (state, assignor string, members int) {
	described := got(t.admin.DescribeConsumerGroups(t.ctx, t.topic))[t.topic]
	must(described.Err, "describe the group")
	return described.State, described.AssignorName, len(described.Members)
}

// expectEachOnce fails unless every numbered record was read exactly once.
func expectEachOnce(read []string, count int) {
	right := values(numbered(count, 1))
	slices.Sort(read)
	slices.Sort(right)
	if !slices.Equal(read, right) {
		fail("read %q, expected %q", read, right)
	}
}
