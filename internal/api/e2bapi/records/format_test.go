package records

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestTheFormatStays compares a written record with the golden file of its version.
func TestTheFormatStays(t *testing.T) {
	s := open(t, t.TempDir())
	r := Record{ID: "sb-00000001-0001", Template: "base", OpenAgent: true, EnvdToken: "secret",
		Metadata: map[string]string{"a": "b"}, Started: time.Unix(1, 0).UTC()}
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(s.path(r.ID))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "record-1.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(got) != string(want) {
		t.Errorf("wrote %s, want %s (%v)", got, want, err)
	}
}

// TestARecordIsClosedUnlessItSaysOpen decodes records of both versions.
func TestARecordIsClosedUnlessItSaysOpen(t *testing.T) {
	for _, c := range []struct {
		name, record string
		open, fails  bool
	}{
		{"version 0 without a token", `{"id":"a","template":"base"}`, false, false},
		{"version 0 with the later field", `{"id":"a","template":"base","open_agent":true}`, false, false},
		{"version 1 without the field", `{"version":1,"id":"a","template":"base"}`, false, false},
		{"version 1, open", `{"version":1,"id":"a","template":"base","open_agent":true}`, true, false},
		{"a later version", `{"version":2,"id":"a","template":"base","open_agent":true}`, false, true},
	} {
		r, err := Decode([]byte(c.record))
		if r.OpenAgent != c.open || (err != nil) != c.fails {
			t.Errorf("%s: open %t, error %v", c.name, r.OpenAgent, err)
		}
	}
}
