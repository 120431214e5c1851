// Uses franz-go as an application would: makes the named check, and reports the error if it fails.
//
// Without arguments it lists the checks it knows.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

var checks = map[string]func(*trial){
	"compression-none":      compression("none"),
	"compression-gzip":      compression("gzip"),
	"compression-snappy":    compression("snappy"),
	"compression-lz4":       compression("lz4"),
	"compression-zstd":      compression("zstd"),
	"idempotence":           idempotence,
	"topics":                topics,
	"configs":               configs,
	"offsets":               offsets,
	"group":                 classicGroup,
	"next-generation-group": nextGenerationGroup,
	"transactions":          transactions,
}

func main() {
	names := slices.Sorted(maps.Keys(checks))
	if len(os.Args) == 1 {
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	if len(os.Args) != 4 || checks[os.Args[1]] == nil {
		fail("give the name of a check (one of %s), a broker and a topic", strings.Join(names, ", "))
	}
	trial := newTrial(os.Args[2], os.Args[3])
	checks[os.Args[1]](trial)
	trial.close()
}
