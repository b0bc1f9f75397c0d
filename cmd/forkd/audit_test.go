package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/domain/audit"
)

// A verification fails and prints the range if changes were dropped, unless this is allowed.
func TestDroppedChangesFailAVerification(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gone := audit.ChainReport{Chain: "tenant-acme", Dropped: 41, Since: &since, Changes: true}
	older := audit.ChainReport{Chain: "anonymous", Dropped: 7, Counted: 99}
	for _, c := range []struct {
		name  string
		r     audit.Report
		allow bool
		fails string
		want  string
	}{
		{"whole", audit.Report{OK: true, Status: audit.Whole}, false, "", "0 lines"},
		{"strangers' lines", audit.Report{OK: true, Status: audit.Whole, Chains: []audit.ChainReport{older}}, false, "",
			"rotated: lines 1 to 7 of chain anonymous"},
		{"changes", audit.Report{OK: true, Status: audit.Gone, Chains: []audit.ChainReport{gone}}, false, "are missing",
			"GONE: lines 1 to 41 of chain tenant-acme, all from before 2026-01-02T03:04:05Z"},
		{"changes, allowed", audit.Report{OK: true, Status: audit.Gone, Chains: []audit.ChainReport{gone}}, true, "", "GONE"},
		{"changed", audit.Report{Status: audit.Changed}, true, "log was changed", ""},
	} {
		var out bytes.Buffer
		err := printAuditReport(&ui.Printer{Out: &out}, c.r, c.allow)
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
			!strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v, %s", c.name, err, out.String())
		}
	}
}
