package oomlog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	global = "3,1021,55512345,-;Out of memory: Killed process 123 (python3) total-vm:301024kB, anon-rss:200000kB, file-rss:0kB\n SUBSYSTEM=x\n"
	ofCgrp = "3,1022,55512346,-;Memory cgroup out of memory: Killed process 7 (a b) total-vm:1kB\n"
)

func TestRecords(t *testing.T) {
	for record, want := range map[string]Kill{
		global: {PID: 123, Name: "python3"}, ofCgrp: {PID: 7, Name: "a b"},
		"3,1,1,-;Out of memory: Killed process x (y)": {}, "no record": {}, "3,1,1,-;Out of memory: Killed process 5 y": {},
		"3,1,1,-;Out of memory: Killed process -5 (y)": {}, "": {},
	} {
		got, ok := parse([]byte(record))
		if !ok {
			got = Kill{}
		}
		if got != want {
			t.Errorf("%q: %+v, want %+v", record, got, want)
		}
	}
}

// What is kept is bounded, and asked for from a moment on.
func TestKillsSinceAMoment(t *testing.T) {
	l := &Log{}
	for i := range 100 {
		l.addLocked(fmt.Appendf(nil, "3,1,1,-;Out of memory: Killed process %d (x)", i+1), time.Unix(int64(i), 0))
	}
	if len(l.kills) != maxKills || l.kills[0].PID != 69 {
		t.Errorf("%d kills are kept, the first is %+v", len(l.kills), l.kills[0])
	}
	empty := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	from := Open(empty)
	from.kills = l.kills
	if got := from.Since(time.Unix(98, 0)); len(got) != 2 || got[0].PID != 99 {
		t.Errorf("since a moment: %+v", got)
	}
	if got := from.Since(time.Unix(1000, 0)); got != nil {
		t.Errorf("since later: %+v", got)
	}
	if Open("/nonexistent").Since(time.Time{}) != nil {
		t.Error("no log has kills")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(global))
	f.Add([]byte(ofCgrp))
	f.Fuzz(func(t *testing.T, record []byte) {
		if k, ok := parse(record); ok && (k.PID <= 0 || len(k.Name) > maxName) {
			t.Errorf("%+v", k)
		}
	})
}
