package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// idempotence checks that franz-go's default producer writes every record once, in order and without gaps.
func idempotence(t *trial) {
	const partitions, each = 3, 400
	t.create(partitions)
	// After a lost response the client waits for new metadata.
	producer := t.producer(kgo.ProducerBatchMaxBytes(2000), kgo.MetadataMinAge(50*time.Millisecond))
	sent := numbered(partitions*each, partitions)
	t.produce(producer, sent)
	for number, record := range sent {
		expect(fmt.Sprintf("offset told for %q", record.Value), record.Offset, int64(number/partitions))
	}

	id, epoch, err := producer.ProducerID(t.ctx)
	must(err, "tell the producer's id")
	next := map[int32]int64{}
	for _, record := range t.read(t.consumer(partitions), len(sent)) {
		offset := next[record.Partition]
		expect(fmt.Sprintf("offset in partition %d", record.Partition), record.Offset, offset)
		right := fmt.Sprintf("record %d", offset*partitions+int64(record.Partition))
		expect("value", string(record.Value), right)
		expect("producer of "+right, record.ProducerID, id)
		next[record.Partition]++
	}

	asked := kadm.TopicsSet{}
	ends, err := t.admin.ListEndOffsets(t.ctx, t.topic)
	must(err, "list end offsets")
	for partition := range int32(partitions) {
		asked.Add(t.topic, partition)
		end, _ := ends.Lookup(t.topic, partition)
		must(end.Err, "list an end offset")
		expect(fmt.Sprintf("end of partition %d", partition), end.Offset, each)
	}
	described, err := t.admin.DescribeProducers(t.ctx, asked)
	must(err, "describe producers")
	producers := described.SortedProducers()
	expect("partitions with a producer", len(producers), partitions)
	for _, producer := range producers {
		expect("id of the producer", producer.ProducerID, id)
		expect("epoch of the producer", producer.ProducerEpoch, epoch)
		expect("last sequence of the producer", producer.LastSequence, each-1)
	}
}
