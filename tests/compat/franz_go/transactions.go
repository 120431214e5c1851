package main

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions checks that committed records are seen, aborted ones are not, and open ones not yet.
func transactions(t *trial) {
	t.create(1)
	producer := t.producer(kgo.TransactionalID(t.topic))
	write := func(records ...string) {
		must(producer.BeginTransaction(), "begin a transaction")
		for _, value := range records {
			t.produce(producer, []*kgo.Record{kgo.StringRecord(value)})
		}
	}
	end := func(how kgo.TransactionEndTry) {
		must(producer.EndTransaction(t.ctx, how), "end a transaction")
	}
	write("committed 1", "committed 2")
	end(kgo.TryCommit)
	write("aborted 1", "aborted 2")
	end(kgo.TryAbort)
	write("committed 3")
	end(kgo.TryCommit)
	write("open")

	// Each of the three ended transactions leaves a marker in the log.
	const stable = 5 + 3
	expectOffset(t, "stable end", got(t.admin.ListCommittedOffsets(t.ctx, t.topic)), stable, -1)
	expectOffset(t, "end", got(t.admin.ListEndOffsets(t.ctx, t.topic)), stable+1, -1)
	committed := t.consumer(1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	expectValues("read_committed", t.read(committed, 3), "committed 1", "committed 2", "committed 3")
	everything := []string{"committed 1", "committed 2", "aborted 1", "aborted 2", "committed 3", "open"}
	expectValues("read_uncommitted", t.read(t.consumer(1), 6), everything...)

	end(kgo.TryCommit)
	expectValues("read_committed after the last commit", t.read(committed, 1), "open")
	last := got(t.admin.ListCommittedOffsets(t.ctx, t.topic))
	expectOffset(t, "stable end after the last commit", last, stable+2, -1)
}

func expectValues(what string, records []*kgo.Record, right ...string) {
	if seen := values(records); !slices.Equal(seen, right) {
		fail("%s: %q, expected %q", what, seen, right)
	}
}
