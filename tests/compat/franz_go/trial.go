package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 30 * time.Second

// firstTimestamp is in the past, but recent enough for every retention.
var firstTimestamp = time.UnixMilli(time.Now().UnixMilli() - 600_000)

// A trial is one check: a broker, an unused topic name, and the clients made so far.
type trial struct {
	ctx       context.Context
	cancel    context.CancelFunc
	bootstrap string
	topic     string
	admin     *kadm.Client
	clients   []*kgo.Client
}

func newTrial(bootstrap, topic string) *trial {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t := &trial{ctx: ctx, cancel: cancel, bootstrap: bootstrap, topic: topic}
	t.admin = kadm.NewClient(t.client())
	return t
}

// fail ends the process with an error message.
func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// must fails unless an action succeeded.
func must(err error, action string) {
	if err != nil {
		fail("%s: %v", action, err)
	}
}

// got returns the result of an action; it fails unless the action succeeded.
func got[T any](result T, err error) T {
	must(err, fmt.Sprintf("get %T", result))
	return result
}

// expect fails unless the actual value is the expected one.
func expect[T comparable](what string, seen, right T) {
	if seen != right {
		fail("%s: %v, expected %v", what, seen, right)
	}
}

func (t *trial) close() {
	for _, client := range t.clients {
		client.Close()
	}
	t.cancel()
}

// client makes a client of the broker, closed at the end of the trial.
func (t *trial) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(t.bootstrap, ",")...))...)
	must(err, "make a client")
	t.clients = append(t.clients, client)
	return client
}

// producer makes a client for records that name their partition.
func (t *trial) producer(options ...kgo.Opt) *kgo.Client {
	partitioner := kgo.RecordPartitioner(kgo.ManualPartitioner())
	return t.client(append(options, partitioner, kgo.DefaultProduceTopic(t.topic))...)
}

// consumer makes a client that is assigned the first partitions of the topic, from their start.
func (t *trial) consumer(partitions int32, options ...kgo.Opt) *kgo.Client {
	starts := map[int32]kgo.Offset{}
	for partition := range partitions {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	assignment := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: starts})
	return t.client(append(options, assignment)...)
}

// create makes the topic.
func (t *trial) create(partitions int32) {
	_, err := t.admin.CreateTopic(t.ctx, partitions, 1, nil, t.topic)
	must(err, "create a topic")
}

// produce writes records and waits until all are acknowledged.
func (t *trial) produce(client *kgo.Client, records []*kgo.Record) {
	must(client.ProduceSync(t.ctx, records...).FirstErr(), "produce")
}

// read polls until it has a number of records, and never returns more.
func (t *trial) read(client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollRecords(t.ctx, count-len(records))
		must(fetches.Err(), fmt.Sprintf("read record %d of %d", len(records)+1, count))
		records = append(records, fetches.Records()...)
	}
	return records
}

// numbered makes records "record 0", "record 1" and so on, a millisecond apart, for the partitions in turn.
func numbered(count int, partitions int32) []*kgo.Record {
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = &kgo.Record{
			Value:     fmt.Appendf(nil, "record %d", number),
			Partition: int32(number) % partitions,
			Timestamp: firstTimestamp.Add(time.Duration(number) * time.Millisecond),
		}
	}
	return records
}

// values lists the values of records.
func values(records []*kgo.Record) []string {
	listed := make([]string, len(records))
	for number, record := range records {
		listed[number] = string(record.Value)
	}
	return listed
}
