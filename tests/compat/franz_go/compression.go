package main

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A codec is a setting of franz-go, and its number in a record batch.
type codec struct {
	setting kgo.CompressionCodec
	number  uint8
}

var codecs = map[string]codec{
	"none":   {kgo.NoCompression(), 0},
	"gzip":   {kgo.GzipCompression(), 1},
	"snappy": {kgo.SnappyCompression(), 2},
	"lz4":    {kgo.Lz4Compression(), 3},
	"zstd":   {kgo.ZstdCompression(), 4},
}

// compression checks that everything in a record comes back exactly from a batch of this codec.
func compression(name string) func(*trial) {
	return func(t *trial) {
		t.create(1)
		sent := kindsOfRecords()
		t.produce(t.producer(kgo.ProducerBatchCompression(codecs[name].setting)), sent)
		for number, record := range t.read(t.consumer(1), len(sent)) {
			right := sent[number]
			expect("offset", record.Offset, int64(number))
			if !same(record.Key, right.Key) {
				fail("key of record %d: %#v, expected %#v", number, record.Key, right.Key)
			}
			if !same(record.Value, right.Value) {
				fail("value of record %d: %#v, expected %#v", number, record.Value, right.Value)
			}
			if !slices.EqualFunc(record.Headers, right.Headers, sameHeader) {
				fail("headers of record %d: %#v, expected %#v", number, record.Headers, right.Headers)
			}
			expect("timestamp", record.Timestamp.UnixMilli(), right.Timestamp.UnixMilli())
			// A batch that does not shrink is not compressed; this one shrinks.
			if len(record.Value) > 1000 {
				expect("codec", record.Attrs.CompressionType(), codecs[name].number)
			}
		}
	}
}

// kindsOfRecords are the records that a client may confuse: empty and missing parts, and bytes of all kinds.
func kindsOfRecords() []*kgo.Record {
	allBytes := make([]byte, 256)
	for number := range allBytes {
		allBytes[number] = byte(number)
	}
	records := []*kgo.Record{
		{Key: []byte("key"), Value: []byte(strings.Repeat("a value that shrinks ", 1000))},
		{Key: []byte("headers"), Value: []byte("value"), Headers: []kgo.RecordHeader{
			{Key: "color", Value: []byte("blue")},
			{Key: "color", Value: []byte("green")},
			{Key: "bytes", Value: allBytes},
			{Key: "empty", Value: []byte{}},
			{Key: "null"},
			{Key: "", Value: []byte("no name")},
		}},
		{Key: []byte("tombstone")},
		{Value: []byte("no key")},
		{Key: []byte{}, Value: []byte{}},
		{},
		{Key: allBytes, Value: allBytes},
		{Key: []byte("Schlüssel"), Value: []byte("水"), Headers: []kgo.RecordHeader{
			{Key: "ключ", Value: []byte("値")},
		}},
	}
	for number, record := range records {
		record.Timestamp = firstTimestamp.Add(time.Duration(number) * time.Millisecond)
	}
	return records
}

// same reports whether two byte strings are equal; nil differs from empty.
func same(one, other []byte) bool {
	return (one == nil) == (other == nil) && bytes.Equal(one, other)
}

func sameHeader(one, other kgo.RecordHeader) bool {
	return one.Key == other.Key && same(one.Value, other.Value)
}
